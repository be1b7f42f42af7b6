"""Conditions over the keys of a section, as a backend's source states them, evaluated without running code."""

import ast
import operator
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

_KINDS: Mapping[str, type] = {
    "int": int, "float": float, "bool": bool, "str": str, "list": list, "tuple": tuple, "dict": dict,
}  # fmt: skip
COMPARED: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
}
_METHODS: Mapping[str, Callable[[str], str]] = {"lower": str.lower, "strip": str.strip}
_FUNCTIONS: Mapping[str, Callable[[Any], Any]] = {"len": len, "str": str}
_QUANTIFIERS: Mapping[str, Callable[[Any], bool]] = {"all": all, "any": any}


class NotACondition(ValueError):
    """The text has something else than comparisons of keys."""


def is_condition(text: str) -> bool:
    """Return whether a text is a condition that `holds` can evaluate."""
    try:
        _checked(_parsed(text))
    except NotACondition:
        return False
    return True


def keys_of(text: str) -> tuple[str, ...]:
    """Return the keys that a condition reads, in order of appearance."""
    return tuple(dict.fromkeys(_checked(_parsed(text))))


def holds(text: str, values: Mapping[str, Any]) -> bool:
    """Return whether a condition holds for these values; a comparison of values that have no order does not.

    Raises:
        NotACondition: the text is none.
        KeyError: a key has no value.
    """
    try:
        return bool(_value(_parsed(text), values))
    except (TypeError, IndexError, AttributeError):
        return False


def requirement(text: str, values: Mapping[str, Any]) -> tuple[str, str]:
    """Return the key whose value a condition is about, and in words what that must be; empty for several keys.

    Args:
        values: for which the condition holds.
    """
    node = _parsed(text)
    while isinstance(node, ast.BoolOp):
        if isinstance(node.op, ast.Or):
            node = next(each for each in node.values if bool(_value(each, values)))
            continue
        decisive = [each for each in node.values if not _is_guard(each)]
        listed: list[ast.expr] = [
            each for each in decisive if isinstance(each, ast.Compare) and isinstance(each.ops[0], ast.NotIn)
        ]
        decisive = listed or decisive
        if len(decisive) != 1:
            return "", ""
        node = decisive[0]
    return _in_words(node)


def _is_guard(node: ast.expr) -> bool:
    """Return whether a part only says that the key has a value, or a value of a kind."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return isinstance(node.operand, ast.Call) and _is_guard(node.operand)
    if isinstance(node, ast.Compare):
        return isinstance(node.ops[0], ast.IsNot)
    is_kind = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance"
    return is_kind or isinstance(node, ast.Name)


_FLIPPED: Mapping[type[ast.cmpop], str] = {
    ast.Lt: "at least",
    ast.LtE: "above",
    ast.Gt: "at most",
    ast.GtE: "below",
    ast.NotIn: "one of",
}
_KIND_WORDS: Mapping[str, str] = {"int": "a whole number", "bool": "true or false", "str": "text", "float": "a number"}


def _in_words(node: ast.expr) -> tuple[str, str]:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        inside = node.operand
        keys = _checked(inside)
        if isinstance(inside, ast.Call) and _is_guard(inside) and isinstance(inside.args[1], ast.Name):
            return keys[0], _KIND_WORDS.get(inside.args[1].id, "")
        is_range = isinstance(inside, ast.Compare) and len(inside.ops) == 2 and len(keys) == 1
        return (keys[0], ast.unparse(inside)) if is_range else ("", "")
    if not isinstance(node, ast.Compare) or len(node.ops) != 1 or type(node.ops[0]) not in _FLIPPED:
        return "", ""
    keys = _checked(node)
    other = node.comparators[0]
    if len(keys) != 1 or not isinstance(other, (ast.Constant, ast.Tuple)) or isinstance(node.left, ast.Subscript):
        return "", ""
    limits = [str(_value(each, {})) for each in (other.elts if isinstance(other, ast.Tuple) else [other])]
    return keys[0], f"{_FLIPPED[type(node.ops[0])]} {', '.join(limits)}"


@lru_cache(maxsize=256)
def _parsed(text: str) -> ast.expr:
    try:
        return ast.parse(text, mode="eval").body
    except SyntaxError:
        raise NotACondition(text) from None


def _checked(node: ast.AST, local: frozenset[str] = frozenset()) -> list[str]:
    """Return the keys below a node; anything that `_value` does not evaluate raises NotACondition."""
    if isinstance(node, ast.Constant):
        return []
    if isinstance(node, ast.Name):
        return [] if node.id in local else [node.id]
    if isinstance(node, ast.Call):
        return _checked_call(node, local)
    parts = _parts(node)
    if parts is None:
        raise NotACondition(ast.unparse(node))
    return [key for part in parts for key in _checked(part, local)]


def _parts(node: ast.AST) -> list[ast.expr] | None:
    if isinstance(node, ast.BoolOp):
        return node.values
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
        return [node.operand]
    if isinstance(node, ast.Compare) and all(type(op) in COMPARED for op in node.ops):
        return [node.left, *node.comparators]
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        return node.elts
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return [node.value]
    return None


def _checked_call(node: ast.Call, local: frozenset[str]) -> list[str]:
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    if isinstance(node.func, ast.Attribute) and node.func.attr in _METHODS and not node.args:
        return _checked(node.func.value, local)
    if name == "isinstance" and len(node.args) == 2 and _kinds(node.args[1]):
        return _checked(node.args[0], local)
    if name in _FUNCTIONS and len(node.args) == 1:
        return _checked(node.args[0], local)
    if name in _QUANTIFIERS and len(node.args) == 1 and isinstance(node.args[0], ast.GeneratorExp):
        each, *nested = node.args[0].generators
        if isinstance(each.target, ast.Name) and not each.ifs and not nested:
            inner = _checked(node.args[0].elt, local | {each.target.id})
            return [*inner, *_checked(each.iter, local)]
    raise NotACondition(ast.unparse(node))


def _kinds(node: ast.expr) -> tuple[type, ...]:
    names = node.elts if isinstance(node, ast.Tuple) else [node]
    found = [_KINDS.get(each.id) if isinstance(each, ast.Name) else None for each in names]
    return tuple(each for each in found if each is not None) if all(found) else ()


def _value(node: ast.expr, values: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return values[node.id]
    if isinstance(node, ast.BoolOp):
        # As Python's own: `(name or "default") not in (...)` compares the value, not whether there is one.
        decisive = isinstance(node.op, ast.Or)
        value = None
        for each in node.values:
            value = _value(each, values)
            if bool(value) == decisive:
                break
        return value
    if isinstance(node, ast.UnaryOp):
        operand = _value(node.operand, values)
        return not operand if isinstance(node.op, ast.Not) else -operand
    if isinstance(node, ast.Compare):
        return _compared(node, values)
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        return [_value(each, values) for each in node.elts]
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return _value(node.value, values)[node.slice.value]
    if isinstance(node, ast.Call):
        return _called(node, values)
    raise NotACondition(ast.unparse(node))


def _compared(node: ast.Compare, values: Mapping[str, Any]) -> bool:
    left = _value(node.left, values)
    for op, other in zip(node.ops, node.comparators, strict=True):
        right = _value(other, values)
        if not COMPARED[type(op)](left, right):
            return False
        left = right
    return True


def _called(node: ast.Call, values: Mapping[str, Any]) -> Any:
    if isinstance(node.func, ast.Attribute):
        return _METHODS[node.func.attr](_value(node.func.value, values))
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    first = node.args[0]
    if name == "isinstance":
        return isinstance(_value(first, values), _kinds(node.args[1]))
    if name in _QUANTIFIERS and isinstance(first, ast.GeneratorExp):
        each = first.generators[0]
        target = each.target.id if isinstance(each.target, ast.Name) else ""
        items = _value(each.iter, values)
        return _QUANTIFIERS[name](_value(first.elt, {**values, target: item}) for item in items)
    if name in _FUNCTIONS:
        return _FUNCTIONS[name](_value(first, values))
    raise NotACondition(ast.unparse(node))
