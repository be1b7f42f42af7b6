"""Parse Megatron-LM's command line from its catalogue (megatron_arguments.json), without Megatron-LM or torch."""

from __future__ import annotations

import argparse
import ast
import dataclasses
import functools
import json
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from typing import Any, NoReturn

from launcher.nearest import nearest
from launcher.rehearse.core.errors import UsageError


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ArgumentRow:
    """One argument of Megatron-LM core 0.16.1 as its parser declares it."""

    flags: tuple[str, ...]
    dest: str
    kind: str
    """store, store_true, store_false or boolean (--x / --no-x)."""
    type: str | None = None
    nargs: str | int | None = None
    choices: tuple[Any, ...] | None = None
    default: Any = None
    group: str | None = None


@functools.cache
def catalogue() -> tuple[ArgumentRow, ...]:
    """Read the catalogue of arguments; one row for each declaration, in the parser's order."""
    text = resources.files("launcher.rehearse.core").joinpath("megatron_arguments.json").read_text(encoding="utf-8")
    return tuple(
        ArgumentRow(
            **{**row, "flags": tuple(row["flags"]), "choices": tuple(row["choices"]) if "choices" in row else None}
        )
        for row in json.loads(text)["arguments"]
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """One argument as given on the command line."""

    flag: str
    dest: str
    value: Any


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """A parsed command line: every value (defaults filled in), and the given arguments."""

    values: Mapping[str, Any]
    given: tuple[Given, ...]

    def __getattr__(self, name: str) -> Any:
        try:
            return self.values[name]
        except KeyError:
            raise AttributeError(name) from None

    def flag(self, dest: str) -> str:
        """Name the flag of an argument as the user wrote it, or as the catalogue lists it first."""
        for given in self.given:
            if given.dest == dest:
                return given.flag
        return next((row.flags[0] for row in catalogue() if row.dest == dest), dest)


class _Parser(argparse.ArgumentParser):
    """A parser that raises UsageError instead of exiting the process."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def parse(argv: Sequence[str]) -> Arguments:
    """Parse Megatron-LM arguments; UsageError with did-you-mean for unknown flags, all of them at once."""
    parser = _build_parser()
    known = [flag for row in catalogue() for flag in row.flags]
    words = [word.split("=", 1)[0] for word in argv]
    unknown = [word for word in words if word.startswith("--") and word not in known]
    if unknown:
        raise UsageError(*(f"unknown argument {word}{_did_you_mean(word, known)}" for word in unknown))
    namespace, rest = parser.parse_known_args(list(argv))
    if rest:
        raise UsageError(*(f"unexpected value {word!r}: it belongs to no argument" for word in rest))
    values = vars(namespace)
    by_flag = {flag: row.dest for row in catalogue() for flag in row.flags}
    flags = {by_flag[word]: word for word in words if word in by_flag}
    given = tuple(Given(flag=flag, dest=dest, value=values[dest]) for dest, flag in flags.items())
    return Arguments(values=values, given=given)


def _did_you_mean(word: str, known: Sequence[str]) -> str:
    close = nearest(word, known, limit=2)
    return f"; did you mean {' or '.join(close)}?" if close else ""


@functools.cache
def _build_parser() -> _Parser:
    parser = _Parser(prog="launcher.rehearse.core", add_help=False, allow_abbrev=False)
    for row in catalogue():
        options: dict[str, Any] = {"dest": row.dest, "default": row.default}
        if row.kind == "boolean":
            parser.add_argument(row.flags[0], action=argparse.BooleanOptionalAction, **options)
            continue
        if row.kind == "store":
            options.update(type=_TYPES[row.type], nargs=row.nargs, choices=row.choices)
        parser.add_argument(*row.flags, action=row.kind, **options)
    return parser


def layer_pattern(text: str) -> int | list[int]:
    """Evaluate Megatron's layer patterns: `N`, or a list expression of digits such as `([0]*3+[1])*2`."""
    tree = ast.parse(text.strip(), mode="eval").body

    def value(node: ast.expr) -> Any:
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value
        if isinstance(node, ast.List):
            return [value(element) for element in node.elts]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return value(node.left) + value(node.right)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            return value(node.left) * value(node.right)
        raise ValueError(f"not a layer pattern: {text}")

    result: int | list[int] = value(tree)
    return result


def _integers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.strip("()").split(","))


def _boolean(text: str) -> bool:
    return text.lower() in ("1", "true", "yes")


_TYPES: Mapping[str | None, Callable[[str], Any]] = {
    None: str,
    "str": str,
    "int": int,
    "float": float,
    "bool": _boolean,
    "enum": lambda text: int(text) if text.isdigit() else text,
    "tuple_type": _integers,
    "moe_freq_type": layer_pattern,
    "no_rope_freq_type": layer_pattern,
    "la_freq_type": layer_pattern,
}
