"""What transformers' HfArgumentParser makes of a dataclass field (transformers/hf_argparser.py:164-250)."""

from __future__ import annotations

import ast
from typing import Any

from launcher.catalogue.checkout.classes import FieldSource, Unknown, evaluate
from launcher.catalogue.checkout.rows import Row

_SIMPLE = {"int": "int", "float": "float", "str": "str", "bool": "bool", "dict": "dict", "Any": "any"}


def union(annotation: ast.expr) -> list[ast.expr]:
    """Return the members of Optional[…], Union[…] and `A | B`, flat, in order; None as a Constant."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return union(ast.parse(annotation.value, mode="eval").body)
    if isinstance(annotation, ast.BinOp) and isinstance(annotation.op, ast.BitOr):
        return union(annotation.left) + union(annotation.right)
    if isinstance(annotation, ast.Subscript):
        head = ast.unparse(annotation.value).rpartition(".")[2]
        if head == "Optional":
            return [*union(annotation.slice), ast.Constant(None)]
        if head == "Union":
            members = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
            return [part for member in members for part in union(member)]
    return [annotation]


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _head(node: ast.expr) -> str:
    target = node.value if isinstance(node, ast.Subscript) else node
    return ast.unparse(target).rpartition(".")[2]


def _chosen(members: list[ast.expr]) -> ast.expr:
    """Return the one member of a Union that the parser really uses."""
    if len(members) == 1:
        return members[0]
    if not any(_is_none(member) for member in members):
        return members[0] if _head(members[1]) == "str" else members[1]
    if any(_head(member) == "bool" for member in members):
        return next(member for member in members if _head(member) == "bool")
    if isinstance(members[1], ast.Subscript):
        # The parser asks isinstance(None, members[1]), a TypeError for List[str]: such a field only works where typing
        # has cached an equal Union in the other order before (ms-swift 4.6's cp_comm_type does, and takes text).
        return members[0]
    return members[0] if _is_none(members[1]) else members[1]


def argument(field: FieldSource) -> Row:
    """Return the catalogue row of one field."""
    members = union(field.annotation)
    nullable = any(_is_none(member) for member in members)
    chosen = _chosen(members)
    row: Row = {"name": field.name, "owner": field.owner.name, "source": field.source, "nullable": nullable}
    row |= _default(field)
    if _head(chosen) == "Literal":
        return row | _literal(chosen, row)
    if _head(chosen) == "bool":
        return row | _bool(row, nullable)
    if _head(chosen) in ("List", "list"):
        return row | _list(chosen, row, field)
    heads = {_head(member) for member in members}
    kind = "json" if "dict" in heads or "Dict" in heads else _SIMPLE.get(_head(chosen), "str")
    return row | {"type": kind}


def _default(field: FieldSource) -> Row:
    try:
        value = field.default()
    except Unknown as error:
        return {"default_from": str(error)}
    return {"required": True} if value is ... else {"default": value}


def _literal(chosen: ast.expr, row: Row) -> Row:
    assert isinstance(chosen, ast.Subscript)
    values = evaluate(chosen.slice)
    choices = values if isinstance(values, list) else [values]
    kinds = {type(choice).__name__ for choice in choices if choice is not None}
    kind = next(iter(kinds)) if len(kinds) == 1 else "str"
    return {"type": kind, "choices": choices, "nullable": row["nullable"] or None in choices}


def _bool(row: Row, nullable: bool) -> Row:
    result: Row = {"type": "bool"}
    if row.get("required"):
        # "Default value is False if we have no default when of type bool."
        result |= {"required": False, "default": False}
    default: Any = result.get("default", row.get("default"))
    result["optional_value"] = not nullable or default is not None
    if default is True:
        result["negation"] = f"no_{row['name']}"
    return result


def _list(chosen: ast.expr, row: Row, field: FieldSource) -> Row:
    item = _head(chosen.slice) if isinstance(chosen, ast.Subscript) else "str"
    result: Row = {"type": _SIMPLE.get(item, "str"), "nargs": "+"}
    call = field.call()
    has_factory = call is not None and any(arg.arg == "default_factory" for arg in call.keywords)
    if "default" in row and not has_factory:
        # A plain default of a list field never reaches the parser: it parses to None, which is not handed on, so that
        # the class that is configured has its own default (swift/megatron/model/utils.py:44 @4.6.0); they agree.
        absent = None if isinstance(row["default"], list) else row["default"]
        result |= {"default": None, "nullable": True, "absent": absent}
    return result
