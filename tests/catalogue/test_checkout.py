"""The parser of a checkout, read from its source."""

from pathlib import Path
from typing import Any

import pytest

from backends.megatron_lm.parser_source import parser_source
from launcher.catalogue.checkout import files
from launcher.catalogue.checkout.files import Checkout, CheckoutRefused
from launcher.catalogue.checkout.read import ReadParser, read_parser
from tests.catalogue import fork_checkouts

_HEAD = "import argparse, enum, json\ndef parse_args():\n    parser = argparse.ArgumentParser()\n"


_ADD = "parser.add_argument('--a')"


def read(folder: Path, base: list[dict[str, Any]] | None = None) -> ReadParser:
    return read_parser(Checkout.open(folder), parser_source(), base or [])


def rows(folder: Path, body: str, before: str = "") -> dict[str, dict[str, Any]]:
    """Return the rows of a parser with these statements, by name."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    fork_checkouts.write(folder, megatron__training__arguments=f"{before}\n{_HEAD}{lines}    return parser\n")
    return {row["name"]: row for row in read(folder).rows}


# name: statements on `parser`, what is before the function, the argument, and what its row has.
SHAPES: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "number": ("parser.add_argument('--a', type=int, default=2**3)", "", "a", {"type": "int", "default": 8}),
    "switch": (
        "parser.add_argument('--no-a', action='store_false', dest='a')",
        "",
        "no-a",
        {"type": "bool", "dest": "a", "default": True, "action": "store_false"},
    ),
    "list": ("parser.add_argument('--a', '-b', nargs='+')", "", "a", {"nargs": "+", "aliases": ["b"], "type": "str"}),
    "optional value": ("parser.add_argument('--a', nargs='?', const=1)", "", "a", {"optional_value": True, "const": 1}),
    "choices of a module": (
        "parser.add_argument('--a', choices=KINDS)",
        "KINDS = ['x', 'y']",
        "a",
        {"choices": ["x", "y"]},
    ),
    "choices of a dict": (
        "parser.add_argument('--a', choices=sorted(KINDS.keys()))",
        "KINDS = {'y': 1, 'x': 2}",
        "a",
        {"choices": ["x", "y"]},
    ),
    "choices of an enumeration": (
        "parser.add_argument('--a', choices=[each.value for each in Kind])",
        "import enum\nclass Kind(enum.Enum):\n    ONE = 'one'\n    TWO = 'two'",
        "a",
        {"choices": ["one", "two"]},
    ),
    "a function's type": ("parser.add_argument('--a', type=lambda x: x)", "", "a", {"type": "any"}),
    "str2bool": ("parser.add_argument('--a', type=str2bool)", "def str2bool(x):\n    return x", "a", {"type": "bool"}),
    "type=bool": ("parser.add_argument('--a', type=bool)", "", "a", {"type": "truth"}),
    "a loop": (
        "for name in ('a', 'b'):\n    parser.add_argument(f'--{name}-size', type=int)",
        "",
        "b-size",
        {"type": "int", "dest": "b_size"},
    ),
    "a helper": (
        "add(parser, '--a', type=float, default=0.5)",
        "def add(where, name, **kwargs):\n    where.add_argument(name, **kwargs)",
        "a",
        {"type": "float", "default": 0.5},
    ),
    "a condition": (
        "if sys.platform == 'x':\n    parser.add_argument('--a')\nelse:\n    parser.add_argument('--b')",
        "import sys",
        "b",
        {"type": "str"},
    ),
    "computed at run time": (
        "parser.add_argument('--a', default=torch.cuda.device_count())",
        "import torch",
        "a",
        {"default_from": "torch.cuda.device_count()"},
    ),
    "a variable of the environment": (
        "parser.add_argument('--a', type=int, default=int(os.getenv('A', '4')))",
        "import os",
        "a",
        {"default": 4},
    ),
    "changed afterwards": (
        "parser.add_argument('--a', choices=['x'])\n"
        "for action in parser._actions:\n"
        "    if '--a' in action.option_strings:\n"
        "        action.choices.append('y')\n"
        "        action.default = 'y'",
        "",
        "a",
        {"choices": ["x", "y"], "default": "y"},
    ),
    "negated by itself": (
        "parser.add_argument('--a', action=argparse.BooleanOptionalAction)",
        "",
        "a",
        {"action": "boolean_optional", "aliases": ["no-a"]},
    ),
    "a dataclass": (
        "Factory = ArgumentGroupFactory(Config, exclude=['hidden'])\nFactory.build_group(parser, 'config')",
        "from dataclasses import dataclass, field\nfrom typing import Literal\n"
        "class ArgumentGroupFactory:\n    def build_group(self, parser, title):\n        ...\n"
        "@dataclass\nclass Config:\n    some_size: int | None = None\n    hidden: int = 0\n"
        "    kind: Literal['x', 'y'] = 'x'\n    fused: bool = True",
        "no-fused",
        {"dest": "fused", "action": "store_false", "aliases": ["disable-fused"], "default": True, "group": "config"},
    ),
}


@pytest.mark.parametrize("case", SHAPES)
def test_what_a_row_has(tmp_path: Path, case: str) -> None:
    body, before, name, wanted = SHAPES[case]
    row = rows(tmp_path, body, before)[name]
    assert {key: row.get(key) for key in wanted} == wanted


def test_an_excluded_field_of_a_dataclass_is_no_argument(tmp_path: Path) -> None:
    body, before, _, _ = SHAPES["a dataclass"]
    found = rows(tmp_path, body, before)
    assert sorted(found) == ["kind", "no-fused", "some-size"]
    assert (found["some-size"]["type"], found["kind"]["choices"]) == ("int", ["x", "y"])


def test_the_source_is_named_and_nothing_is_executed(tmp_path: Path) -> None:
    found = read(fork_checkouts.fork(tmp_path))
    row = {each["name"]: each for each in found.rows}["z-loss-weight"]
    line = fork_checkouts.FORK[: fork_checkouts.FORK.index("--z-loss-weight")].count("\n") + 1
    assert row["source"] == f"megatron/training/arguments.py:{line}"
    assert (row["help"], row["owner"], row["group"]) == ("Weight of the z-loss.", "_add_training_args", "training")
    assert found.parser == "megatron/training/arguments.py:parse_args"
    assert (found.scripts, found.providers) == (("pretrain_ours.py",), ("pretrain_ours.py:add_ours",))


def test_a_checkout_that_extends_a_parser_elsewhere(tmp_path: Path) -> None:
    entry = (
        "from megatron.training import pretrain\nfrom ours.arguments import add\n"
        "if __name__ == '__main__':\n    pretrain(1, extra_args_provider=add)\n"
    )
    calls = "    parser.add_argument('--lr', type=int)\n    parser.add_argument('--ours')\n"
    own = f"def add(parser):\n{calls}    return parser\n"
    folder = fork_checkouts.write(tmp_path, examples__pretrain_x=entry, ours__arguments=own)
    found = read(folder, [{"name": "lr", "type": "float"}])
    assert (found.parser, found.added) == ("", frozenset({"ours"}))
    assert {row["name"]: row["type"] for row in found.rows} == {"lr": "float", "ours": "str"}


def test_a_parser_handed_to_another_package_is_reported(tmp_path: Path) -> None:
    body = "parser.add_argument('--a')\nparser = vendor.add_arguments(parser)\nparser.add_argument('--b')"
    found = rows(tmp_path, body, "import vendor")
    assert sorted(found) == ["a", "b"]
    assert list(read(tmp_path).outside) == ["vendor.add_arguments"]


def test_arguments_of_deepspeed_are_known(tmp_path: Path) -> None:
    found = rows(
        tmp_path, "parser.add_argument('--a')\nparser = deepspeed.add_config_arguments(parser)", "import deepspeed"
    )
    assert found["deepspeed"]["action"] == "store_true"
    assert not read(tmp_path).outside


def test_a_name_that_only_running_gives_is_reported(tmp_path: Path) -> None:
    rows(tmp_path, "parser.add_argument('--a')\nparser.add_argument('--' + compute())", "from elsewhere import compute")
    assert list(read(tmp_path).unread) == ["megatron/training/arguments.py:6"]


# name: files, what the refusal says.
BAD: dict[str, tuple[dict[str, str], str]] = {
    "no Python": ({}, "holds no Python file"),
    "no parser": ({"train": "print(1)"}, "no parser found: looked for megatron/training/arguments.py"),
    "syntax error": ({"megatron__training__arguments": "def parse_args(:\n"}, "the file of its parser line 1: "),
    "a parser without arguments": (
        {"arguments": "import argparse\ndef parse_args():\n    return argparse.ArgumentParser().add_argument\n"},
        "no parser found",
    ),
    "endless": (
        {"arguments": f"{_HEAD}    for a in range(9999):\n        for b in range(9999):\n            {_ADD}\n"},
        "too many steps",
    ),
    "deep": ({"arguments": f"{_HEAD}    parser.add_argument('--a', default={'-' * 900}1)\n"}, "nested too deeply"),
    "large": (
        {"arguments": f"{_HEAD}    {_ADD}\n    x = 'x' * 10**9\n    y = 9**9**9\n    z = '%999999999d' % 1\n"},
        "",
    ),
    "recursive": (
        {"arguments": f"{_HEAD}    {_ADD}\n    return parse_args(parser)\n"},
        "",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(tmp_path: Path, case: str) -> None:
    content, message = BAD[case]
    fork_checkouts.write(tmp_path, **content)
    if not message:
        assert "a" in {row["name"] for row in read(tmp_path).rows}
        return
    with pytest.raises(CheckoutRefused) as refused:
        read(tmp_path)
    assert message in refused.value.message


def test_links_out_of_the_checkout_are_not_followed(tmp_path: Path) -> None:
    outside = fork_checkouts.write(tmp_path / "outside", arguments=f"{_HEAD}    parser.add_argument('--a')\n")
    inside = tmp_path / "inside"
    (inside / "megatron").mkdir(parents=True)
    (inside / "megatron" / "arguments.py").symlink_to(outside / "arguments.py")
    (inside / "more").symlink_to(outside)
    (inside / "x.py").write_text("1\n")
    with pytest.raises(CheckoutRefused, match=r"no parser found|is a link to a file outside"):
        read(inside)


def test_large_files_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_FILE", 100)
    fork_checkouts.fork(tmp_path)
    with pytest.raises(CheckoutRefused, match="is larger than"):
        read(tmp_path)


@pytest.mark.parametrize("name", ["nosuch", "a_file"])
def test_what_is_no_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "a_file").write_text("")
    with pytest.raises(CheckoutRefused, match=r"no such folder|expected the folder"):
        Checkout.open(tmp_path / name)
