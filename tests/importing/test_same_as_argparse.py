"""The parser that is built from a catalogue accepts what argparse accepts with the same arguments, and nothing else."""

import argparse
import contextlib
import io
import json
import pprint
import random
from collections.abc import Callable
from typing import Any

import pytest

from launcher.catalogue.catalogue import FALSE_WORDS, TRUE_WORDS, Argument, Catalogue
from launcher.importing.argv import Parsed, parse_argv
from launcher.mapping.backend import get_backend
from tests.sampling import dice, trials

pytestmark = pytest.mark.slow

VERSIONS = [
    (name, version) for name in ("megatron_lm", "mindspeed", "megatron") for version in get_backend(name).versions
]
ARGS = (
    *("0", "1", "-1", "+3", "007", "1_000", " 5", "5 ", "0x10", "1.0", "1e3", "-1e-5", ".5", "nan", "inf", "-inf", "٣"),
    *(
        "None",
        "none",
        "null",
        "true",
        "True",
        "false",
        "yes",
        "x",
        "",
        " ",
        "a b",
        "-x",
        "-",
        "--",
        "all",
        "[1]*2",
        "{}",
    ),
    *("@file", "a=b", "--x y", "-1 2", "1,2", "rope", "adam", "alltoall", "selective", "auto", "\t"),
)


class Refused(Exception):
    """The parser ended."""


class Parser(argparse.ArgumentParser):
    """A parser that raises instead of ending the process."""

    def error(self, message: str) -> Any:
        raise Refused(message)

    def exit(self, status: int = 0, message: str | None = None) -> Any:
        raise Refused(message or "")


def _expression(arg: str) -> Any:
    """Megatron-LM's moe_freq_type and its relatives (arguments.py:2340 @core_v0.16.1), without eval."""
    return arg if "[" in arg else int(arg)


def _boolean(arg: str) -> bool:
    """transformers' string_to_bool (hf_argparser.py:33)."""
    if arg.lower() not in TRUE_WORDS | FALSE_WORDS:
        raise argparse.ArgumentTypeError(arg)
    return arg.lower() in TRUE_WORDS


def _integers(arg: str) -> tuple[int, ...]:
    return tuple(int(part) for part in arg.strip("()").split(","))


TYPES: dict[str, Callable[[str], Any]] = {
    "int": int,
    "float": float,
    "json_text": json.loads,
    "expr": _expression,
    "ints": _integers,
    "truth": bool,
}


def real(catalogue: Catalogue) -> Parser:
    """Return argparse's parser of the same arguments."""
    parser = Parser(add_help=False, allow_abbrev=catalogue.abbreviations)
    for argument in catalogue.arguments:
        if argument.action in ("help", "version"):
            continue
        is_pair = argument.action == "boolean_optional"
        known = [name for name in (argument.name, *argument.aliases) if not (is_pair and name.startswith("no-"))]
        names = [f"--{name}" for name in known]
        if catalogue.style == "hf":
            names = list(dict.fromkeys(spelling for name in names for spelling in (name, _dashed(name))))
        parser.add_argument(*names, dest=argument.dest, default=None, **_kind(argument, catalogue.style))
        if argument.negation:
            negation = f"--{argument.negation}"
            names = list(dict.fromkeys((negation, _dashed(negation))))
            parser.add_argument(*names, dest=argument.dest, action="store_false", default=None)
    return parser


def _dashed(name: str) -> str:
    return "--" + name[2:].replace("_", "-")


def _kind(argument: Argument, style: str) -> dict[str, Any]:
    if argument.action == "boolean_optional":
        return {"action": argparse.BooleanOptionalAction}
    if argument.action in ("store_true", "store_false"):
        return {"action": argument.action}
    if argument.action == "store_const":
        return {"action": "store_const", "const": argument.const}
    kind = TYPES.get(argument.type, str)
    choices = [choice for choice in argument.choices if choice is not None] if argument.choices else None
    if choices and style == "hf" and any(not isinstance(choice, str) for choice in choices):
        # transformers' make_choice_type_function (hf_argparser.py:49): choices of several types are compared as text.
        kind, choices = str, [str(choice) for choice in choices]
    nargs = "?" if argument.optional_value else argument.nargs
    if argument.type == "bool":
        return {"type": _boolean, "nargs": nargs, **({"const": True} if nargs == "?" else {})}
    if nargs == "?":
        return {"type": kind, "choices": choices, "nargs": nargs, "const": argument.const}
    return {"action": argument.action, "type": kind, "choices": choices, "nargs": nargs}


def drawn_args(catalogue: Catalogue, draw: random.Random) -> list[str]:
    """Draw a short command line: names as they are, misspelt or cut, values of all kinds."""
    line: list[str] = []
    for _ in range(draw.choice((1, 1, 2, 3))):
        argument = draw.choice(catalogue.arguments)
        name = draw.choice(
            (argument.name,) * 5 + (argument.name.replace("-", "_"), argument.name[:-1], f"no-{argument.name}")
        )
        values = [_value(argument, draw) for _ in range(draw.choice((0, 0, 1, 1, 1, 2, 3)))]
        # argparse of Python 3.11 takes the value `--` away, and ends in an internal error.
        if values and values[0] != "--" and draw.random() < 0.2:
            line += [f"--{name}={values[0]}", *values[1:]]
        else:
            line += [f"--{name}", *values]
    return line


def _value(argument: Argument, draw: random.Random) -> str:
    if argument.choices and draw.random() < 0.5:
        return str(draw.choice(argument.choices))
    return draw.choice(ARGS)


def refused(parsed: Parsed) -> list[Any]:
    return [*parsed.unknown, *parsed.positional, *parsed.problems, *parsed.lenient, *parsed.loose]


@pytest.mark.parametrize(("name", "version"), VERSIONS)
def test_the_same_lines_are_accepted(name: str, version: str) -> None:
    catalogue = get_backend(name).catalogue(version)
    parser = real(catalogue)
    draw = dice(f"argparse {name} {version}")
    wrong = []
    for _ in range(trials(3000)):
        line = drawn_args(catalogue, draw)
        try:
            with contextlib.redirect_stderr(io.StringIO()):
                parser.parse_args(line)
            accepted, why = True, ""
        except Refused as error:
            accepted, why = False, str(error)
        mine = refused(parse_argv(line, catalogue))
        if accepted == bool(mine):
            wrong.append((line, why, mine))
    assert not wrong, pprint.pformat(wrong[:10])
