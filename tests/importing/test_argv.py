"""Words to typed values, as argparse and HfArgumentParser read them: against catalogues that are made here."""

import pytest

from launcher.catalogue.catalogue import Argument, Catalogue
from launcher.importing.argv import Parsed, parse_argv
from launcher.importing.shell.placeholders import placeholder

ARGPARSE = Catalogue(
    backend="x",
    version="1",
    style="argparse",
    arguments=(
        Argument(name="tp", dest="tp", type="int", default=1, has_default=True),
        Argument(name="lr", dest="lr", type="float"),
        Argument(name="bf16", dest="bf16", type="bool", action="store_true", default=False, has_default=True),
        Argument(name="no-fusion", dest="fusion", type="bool", action="store_false", default=True, has_default=True),
        Argument(name="data", dest="data", nargs="*"),
        Argument(name="name", dest="name"),
        Argument(name="spec", dest="spec", nargs=2),
        Argument(name="kind", dest="kind", choices=("a", "b")),
        Argument(name="freq", dest="freq", type="expr", default=1, has_default=True),
        Argument(name="new", dest="new", type="bool", action="boolean_optional"),
    ),
)
HF = Catalogue(
    backend="y",
    version="1",
    style="hf",
    abbreviations=True,
    arguments=(
        Argument(name="micro_batch_size", dest="micro_batch_size", type="int"),
        Argument(name="model", dest="model"),
        Argument(name="model_type", dest="model_type"),
        Argument(name="packing", dest="packing", type="bool", optional_value=True, negation="no_packing"),
        Argument(name="dataset", dest="dataset", nargs="+"),
        Argument(name="extra", dest="extra", type="json"),
    ),
)

VALUES = {
    "types": (ARGPARSE, "--tp 4 --lr 1e-5 --bf16 --name 12", {"tp": 4, "lr": 1e-5, "bf16": True, "name": "12"}),
    "equals sign": (ARGPARSE, "--tp=4 --name=a=b", {"tp": 4, "name": "a=b"}),
    "negative number": (ARGPARSE, "--lr=-1e-5 --tp -1", {"lr": -1e-5, "tp": -1}),
    "switch off": (ARGPARSE, "--no-fusion", {"no-fusion": True}),
    "several values": (ARGPARSE, "--data 0.3 a 0.7 b --tp 1", {"data": ("0.3", "a", "0.7", "b"), "tp": 1}),
    "fixed number of values": (ARGPARSE, "--spec module layer", {"spec": ("module", "layer")}),
    "last duplicate wins": (ARGPARSE, "--tp 2 --tp 4", {"tp": 4}),
    "expression": (ARGPARSE, "--freq ([0]*3+[1]*5)", {"freq": "([0]*3+[1]*5)"}),
    "boolean pair": (ARGPARSE, "--no-new", {"new": False}),
    "hf dash is underscore": (HF, "--micro-batch-size 2", {"micro_batch_size": 2}),
    "hf prefix": (HF, "--micro 2", {"micro_batch_size": 2}),
    "hf exact name before prefixes": (HF, "--model m", {"model": "m"}),
    "hf bare bool": (HF, "--packing --model m", {"packing": True, "model": "m"}),
    "hf bool with value": (HF, "--packing false", {"packing": False}),
    "hf negation": (HF, "--no_packing", {"packing": False}),
    "hf list": (HF, "--dataset a#500 b", {"dataset": ("a#500", "b")}),
    "hf json": (HF, '--extra {"a":1}', {"extra": {"a": 1}}),
}


@pytest.mark.parametrize("name", VALUES)
def test_values(name: str) -> None:
    catalogue, args, expected = VALUES[name]
    parsed = parse_argv(args.split(), catalogue)
    assert (parsed.values, parsed.problems, parsed.unknown) == (expected, [], {})


PROBLEMS = {
    "no value": (ARGPARSE, ["--tp"], ("--tp", "needs a value")),
    "wrong type": (ARGPARSE, ["--tp", "two"], ("--tp", "tp must be a whole number, got 'two'")),
    "wrong choice": (ARGPARSE, ["--kind", "c"], ("--kind", "kind must be one of a, b, got 'c'")),
    "value of a switch": (ARGPARSE, ["--bf16=1"], ("--bf16", "takes no value, got '1'")),
    "negative number that argparse takes for an option": (ARGPARSE, ["--lr", "-1e-5"], ("--lr", "needs a value")),
    "value of a boolean pair": (ARGPARSE, ["--new=1"], ("--new", "takes no value, got '1'")),
    "no expression": (ARGPARSE, ["--freq", "x"], ("--freq", "freq must be a number or a list expression, got 'x'")),
    "too few values": (ARGPARSE, ["--spec", "m"], ("--spec", "takes 2 values, got 1")),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_problems(name: str) -> None:
    catalogue, args, expected = PROBLEMS[name]
    assert parse_argv(args, catalogue).problems == [expected]


def test_an_ambiguous_prefix_is_kept_separate() -> None:
    """It may be the name of an argument that another version has."""
    parsed = parse_argv(["--mo", "x"], HF)
    assert (parsed.ambiguous, parsed.unknown) == ({"mo": "is ambiguous: model, model_type"}, {"mo": ("x",)})


def test_an_ambiguous_prefix_is_one_also_with_a_blank_in_its_value() -> None:
    """argparse looks for abbreviations before it takes a word with a blank for a positional one."""
    assert parse_argv(["--mo=x y"], HF).ambiguous == {"mo": "is ambiguous: model, model_type"}
    assert parse_argv(["--nothing=x y"], HF).positional == ["--nothing=x y"]


def test_argparse_takes_no_prefixes() -> None:
    assert parse_argv(["--nam", "x"], ARGPARSE).unknown == {"nam": ("x",)}


def test_open_values_are_kept_and_named() -> None:
    parsed: Parsed = parse_argv(["--name", placeholder("$NAME"), "--tp", placeholder("$TP")], ARGPARSE)
    assert parsed.values == {"name": "$NAME", "tp": "$TP"}
    assert parsed.open == {"name": "$NAME", "tp": "$TP"}
    assert parsed.problems == []


def test_an_argument_that_is_only_an_unset_variable_vanishes_with_a_warning() -> None:
    parsed = parse_argv(["--tp", "2", placeholder("$MOE_ARGS")], ARGPARSE)
    assert parsed.values == {"tp": 2}
    assert parsed.positional == []
    assert parsed.warnings == [("$MOE_ARGS", "is not set: replaced by nothing")]


def test_a_text_with_blanks_that_nobody_quoted_stays_one() -> None:
    parsed = parse_argv(["--name", "your", "model", "path", "--tp", "2"], ARGPARSE)
    assert parsed.values == {"name": "your model path", "tp": 2}
    assert "blanks" in parsed.lenient[0][1]


def test_duplicates_are_reported() -> None:
    assert parse_argv(["--tp", "2", "--tp", "4"], ARGPARSE).warnings == [
        ("--tp", "is given twice (2, 4): the last one is used")
    ]
    assert parse_argv(["--tp", "2", "--tp", "2"], ARGPARSE).warnings == []


@pytest.mark.parametrize(("arg", "value"), [("8.0", 8), ("1e3", 1000), ("-2.0", -2)])
def test_a_whole_number_that_is_written_as_a_fraction_is_taken_and_reported(arg: str, value: int) -> None:
    parsed = parse_argv(["--tp", arg], ARGPARSE)
    assert (parsed.values, parsed.problems, parsed.loose) == ({"tp": value}, [], {"--tp"})
    assert f"{arg} is read as {value}" in parsed.lenient[0][1]


@pytest.mark.parametrize("arg", ["8.5", "inf", "nan", "1e300", "eight"])
def test_what_is_no_whole_number_is_refused(arg: str) -> None:
    assert [option for option, _ in parse_argv(["--tp", arg], ARGPARSE).problems] == ["--tp"]
