"""Values of the expressions of a parser's source: constants, and what stands for parsers, functions and classes."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from launcher.catalogue.checkout.files import SourceFile
from launcher.catalogue.conditions import COMPARED

Value: TypeAlias = Any
"""A constant, list, dict, or one of the classes below."""
Scope: TypeAlias = dict[str, Value]
_MAX_SIZE = 10_000
_MAX_DEPTH = 40
_MAX_EXPONENT = 64
_MAX_NUMBER = 2**256


@dataclass(frozen=True, slots=True)
class Unknown:
    """A value that only running the program gives; `text` is its source."""

    text: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class ParserValue:
    """An argparse parser, or a group of one."""

    group: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class FunctionValue:
    """A function of the checkout with the scopes around it, and the object that it is bound to."""

    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    file: SourceFile
    scopes: tuple[Scope, ...] = ()
    bound: Value = None

    @property
    def name(self) -> str:
        return "<lambda>" if isinstance(self.node, ast.Lambda) else self.node.name


@dataclass(frozen=True, slots=True, eq=False)
class ClassValue:
    """A class of the checkout."""

    node: ast.ClassDef
    file: SourceFile


@dataclass(frozen=True, slots=True, eq=False)
class InstanceValue:
    """An object of a class of the checkout."""

    kind: ClassValue
    args: tuple[Value, ...] = ()
    kwargs: Mapping[str, Value] = field(default_factory=dict)
    attributes: Scope = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EnumMember:
    """A member of an enumeration of the checkout."""

    kind: str
    name: str
    value: Value = None


@dataclass(frozen=True, slots=True)
class External:
    """A name that is imported from outside of the checkout, or built in: `argparse.ArgumentParser`."""

    name: str

    @property
    def last(self) -> str:
        return self.name.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class Method:
    """A method of a value that is not a function of the checkout: `parser.add_argument`, `"a".replace`."""

    of: Value
    name: str


@dataclass(frozen=True, slots=True)
class ActionRef:
    """An argument that the source looks up by its option (`if "--x" in action.option_strings`)."""

    option: str


@dataclass(frozen=True, slots=True)
class ChoicesRef:
    """The choices of such an argument."""

    option: str


def weight(value: Value, depth: int = 0) -> int:
    """Return how many constants a list or dict holds in all; above the limit of what is read, any larger number."""
    if depth > _MAX_DEPTH:
        return _MAX_SIZE + 1
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if not isinstance(value, (list, tuple)):
        return 1 + (len(value) // 100 if isinstance(value, str) else 0)
    total = 1
    for item in value:
        total += weight(item, depth + 1)
        if total > _MAX_SIZE:
            break
    return total


def bounded(value: Value) -> Value:
    """Return a value that has been computed, or Unknown if it is larger than any that a parser needs."""
    if isinstance(value, int) and abs(value) > _MAX_NUMBER:
        return Unknown()
    return value if weight(value) <= _MAX_SIZE else Unknown()


def is_plain(value: Value) -> bool:
    """Return whether a value is a constant, or a list or dict of constants."""
    if isinstance(value, (list, tuple)):
        return all(map(is_plain, value))
    if isinstance(value, dict):
        return all(map(is_plain, value)) and all(map(is_plain, value.values()))
    return value is None or isinstance(value, (bool, int, float, str))


_BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.BitOr: operator.or_,
}


def binary(kind: ast.operator, one: Value, other: Value) -> Value:
    """Return the result of an operator on constants; Unknown where it would be large, or is the layout of a text."""
    if not (is_plain(one) and is_plain(other)) or type(kind) not in _BINARY:
        return Unknown()
    if isinstance(kind, ast.Mod) and isinstance(one, str):
        return Unknown()
    if isinstance(kind, ast.Mult):
        for several, count in ((one, other), (other, one)):
            if isinstance(several, (str, list)) and isinstance(count, int) and len(several) * count > _MAX_SIZE:
                return Unknown()
    if isinstance(kind, (ast.Pow, ast.LShift)) and not (
        isinstance(one, (int, float))
        and isinstance(other, int)
        and 0 <= other <= _MAX_EXPONENT
        and abs(one) < _MAX_SIZE
    ):
        return Unknown()
    try:
        return bounded(_BINARY[type(kind)](one, other))
    except (TypeError, ValueError, ZeroDivisionError, OverflowError):
        return Unknown()


def compared(kind: ast.cmpop, one: Value, other: Value) -> Value:
    """Return the result of a comparison; Unknown where a side is."""
    if isinstance(one, Unknown) or isinstance(other, Unknown):
        return Unknown()
    if not (is_plain(one) and is_plain(other)) and not isinstance(kind, (ast.Is, ast.IsNot)):
        return Unknown()
    try:
        return bool(COMPARED[type(kind)](one, other))
    except TypeError:
        return Unknown()


_TEXT = frozenset({"replace", "lower", "upper", "strip", "lstrip", "rstrip", "split", "title", "join"})
_MAPPING = frozenset({"keys", "values", "items", "get"})


def called_method(of: Value, name: str, args: list[Value]) -> Value:
    """Return what a method of a constant returns."""
    known = (isinstance(of, str) and name in _TEXT) or (isinstance(of, dict) and name in _MAPPING)
    if not known or not all(map(is_plain, args)):
        return Unknown()
    if name == "replace" and (len(args) < 2 or not args[0] or not _is_short(args[1])):
        return Unknown()
    if name == "join" and not (_is_short(of) and args and isinstance(args[0], list)):
        return Unknown()
    try:
        found = getattr(of, name)(*args)
    except (TypeError, ValueError):
        return Unknown()
    return bounded(found if isinstance(of, str) or name == "get" else list(map(_listed, found)))


def _listed(value: Value) -> Value:
    return list(value) if isinstance(value, tuple) else value


def _is_short(value: Value) -> bool:
    return isinstance(value, str) and len(value) <= _MAX_EXPONENT


_BUILT_IN: Mapping[str, Callable[..., Any]] = {
    "list": list,
    "tuple": list,
    "sorted": sorted,
    "set": lambda items=(): list(dict.fromkeys(items)),
    "len": len,
    "str": str,
    "int": int,
    "float": float,
    "bool": bool,
    "dict": dict,
    "abs": abs,
    "min": min,
    "max": max,
    "enumerate": lambda items: [list(pair) for pair in enumerate(items)],
    "zip": lambda *lists: [list(each) for each in zip(*lists, strict=False)],
    "range": lambda *bounds: list(range(*bounds)) if len(range(*bounds)) <= _MAX_SIZE else Unknown(),
}


def called_builtin(name: str, args: list[Value], kwargs: Mapping[str, Value]) -> Value:
    """Return what a built-in function returns for constants."""
    if name == "dict" and not args:
        return dict(kwargs)
    if name not in _BUILT_IN or kwargs or not all(map(is_plain, args)):
        return Unknown()
    try:
        return bounded(_BUILT_IN[name](*args))
    except (TypeError, ValueError, OverflowError):
        return Unknown()
