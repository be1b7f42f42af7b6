"""Lists of layers that Megatron's parser evaluates as Python, such as `([0]*1+[1]*3)`: read without evaluating them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    import ast

_CHARACTERS = re.compile(r"[,\d\[\]()+*\s]+", re.ASCII)
_LONGEST = 1_000_000  # entries; no model has as many layers, and a longer list would take the memory


def expand(expression: str) -> list[int] | None:
    """Return the list that a pattern expression describes; None if it is not one, or is longer than any model's.

    Accepts what Python evaluates of the characters that Megatron allows: lists of numbers, `+`, `*` and parentheses
    (_eval_pattern, megatron/training/arguments.py:198 @core_v0.16.1), and spaces.
    """
    if not _CHARACTERS.fullmatch(expression):
        return None
    import ast  # few commands read one

    try:
        value = _value(ast.parse(expression.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return value if isinstance(value, list) else None


def may_be_list(text: str) -> bool:
    """Return whether a text is a list expression, or one with a variable; spaces are a rule's matter."""
    return "[" in text and ("$" in text or expand(text) is not None)


def _value(node: ast.expr) -> int | list[int]:
    """Return the value of an expression.

    Raises:
        ValueError: it is neither a number nor a list of numbers, or it is longer than a model.
    """
    import ast

    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.List(elts=items):
            found = [_value(item) for item in items]
            return [item for item in found if isinstance(item, int)] if _are_numbers(found) else _refused()
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _sum(_value(left), _value(right))
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _product(_value(left), _value(right))
    return _refused()


def _are_numbers(items: Sequence[int | list[int]]) -> bool:
    return all(isinstance(item, int) for item in items)


def _sum(one: int | list[int], other: int | list[int]) -> int | list[int]:
    if isinstance(one, int) and isinstance(other, int):
        return one + other
    if isinstance(one, list) and isinstance(other, list) and len(one) + len(other) <= _LONGEST:
        return one + other
    return _refused()


def _product(one: int | list[int], other: int | list[int]) -> int | list[int]:
    if isinstance(one, int) and isinstance(other, int):
        return one * other
    items, times = (one, other) if isinstance(one, list) else (other, one)
    if isinstance(items, list) and isinstance(times, int) and len(items) * times <= _LONGEST:
        return items * times
    return _refused()


def _refused() -> NoReturn:
    raise ValueError("neither a number nor a list of numbers, or longer than a model")
