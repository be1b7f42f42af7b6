"""Which layers are MoE layers: Megatron's pattern expressions, written and parsed without evaluating Python."""

import ast
import re
from collections.abc import Iterable, Sequence
from typing import NoReturn

from launcher.budgets import BUDGETS
from launcher.job.model import Model

_CHARACTERS = re.compile(r"[,\d\[\]()+*\s]+", re.ASCII)
_LONGEST = BUDGETS["layers"].limit


def pattern(layers: int, dense: int, every: int) -> str:
    """Return the expression for `dense` dense layers, then an MoE layer at each multiple of `every`.

    Source: moe_freq_type, megatron/training/arguments.py:231 @core_v0.16.1; Hugging Face's rule is
    `layer >= first_k_dense_replace and layer % moe_layer_freq == 0` (DeepseekV3DecoderLayer).
    """
    if every == 1:
        return f"([0]*{dense}+[1]*{layers - dense})"
    return written(index >= dense and index % every == 0 for index in range(layers))


def written(kinds: Iterable[int | bool]) -> str:
    """Return a list of layers as an expression: `[0,1,1]`."""
    return "[" + ",".join(str(int(kind)) for kind in kinds) + "]"


def expert_pattern(model: Model) -> str:
    """Return the expression for the layers of a model that have experts."""
    layers = model.num_hidden_layers or 0
    if model.mlp_only_layers:
        return written(map(model.has_experts_at, range(layers)))
    return pattern(layers, model.first_k_dense_replace, model.moe_layer_freq)


def window_pattern(model: Model) -> str:
    """Return the expression for the layers of a model that attend within the window."""
    return written(layer not in model.full_attention_layers for layer in range(model.num_hidden_layers or 0))


def full_layers(expression: object, layers: object) -> tuple[int, ...] | None:
    """Return the layers without the window of an expression for all `layers`; None if it is none."""
    kinds = expand(str(expression))
    if kinds is None or len(kinds) != layers or not set(kinds) <= {0, 1}:
        return None
    return zeros(kinds)


def zeros(kinds: Sequence[int]) -> tuple[int, ...]:
    """Return the indices of zeros."""
    return tuple(index for index, kind in enumerate(kinds) if not kind)


def expand(expression: str) -> list[int] | None:
    """Return the list that a pattern expression describes; None if it is not one, or has more than a model's layers.

    Accepts what Python evaluates of the characters that Megatron allows: lists of numbers, `+`, `*` and parentheses
    (_eval_pattern, megatron/training/arguments.py:198 @core_v0.16.1), and spaces.
    """
    if not _CHARACTERS.fullmatch(expression):
        return None
    try:
        value = _value(ast.parse(expression.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return value if isinstance(value, list) else None


def _value(node: ast.expr) -> int | list[int]:
    """Return the value of an expression.

    Raises:
        ValueError: it is neither a number nor a list of numbers, or it is longer than a model.
    """
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


def describe(kinds: list[int]) -> tuple[int, int] | None:
    """Return (dense layers at the start, MoE layer every n) of a list of kinds; None if no such rule describes it."""
    layers = len(kinds)
    if 1 not in kinds:
        return None
    first = kinds.index(1)
    for every in range(1, layers + 1):
        for dense in range(max(0, first - every + 1), first + 1):
            if [int(index >= dense and index % every == 0) for index in range(layers)] == kinds:
                return dense, every
    return None
