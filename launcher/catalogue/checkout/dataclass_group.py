"""Arguments that a parser makes of a dataclass's fields with an ArgumentGroupFactory, as Megatron-LM has since 0.15."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from launcher.catalogue.checkout.files import SourceFile
from launcher.catalogue.checkout.found import Call
from launcher.catalogue.checkout.interpreter import Interpreter
from launcher.catalogue.checkout.values import ClassValue, External, InstanceValue, Unknown, Value
from launcher.records import dataclass

_OPTIONAL = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class _Field:
    name: str
    annotation: ast.expr
    default: ast.expr | None
    file: SourceFile
    owner: str
    line: int


def add_dataclass(interpreter: Interpreter, factory: InstanceValue, title: str) -> None:
    """Record the arguments of `ArgumentGroupFactory(Class, exclude=[…]).build_group(parser, title)`.

    Source: megatron/training/argument_utils.py:96 _extract_type, :137 _build_argparse_kwargs_from_field @core_v0.16.1.
    """
    kind = factory.args[0] if factory.args else factory.kwargs.get("src_cfg_class")
    excluded = factory.args[1] if len(factory.args) > 1 else factory.kwargs.get("exclude")
    if not isinstance(kind, ClassValue):
        interpreter.found.unread[title] = "the fields of a class outside of the checkout"
        return
    for each in _fields(interpreter, kind):
        if not (isinstance(excluded, list) and each.name in excluded):
            _add(interpreter, each, title)


def _fields(interpreter: Interpreter, kind: ClassValue) -> list[_Field]:
    found: dict[str, _Field] = {}
    for owner in reversed(interpreter.modules.bases(kind)):
        for node in owner.node.body:
            if not (isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)):
                continue
            if "ClassVar" in ast.unparse(node.annotation):
                continue
            found[node.target.id] = _Field(
                name=node.target.id,
                annotation=node.annotation,
                default=node.value,
                file=owner.file,
                owner=owner.node.name,
                line=node.lineno,
            )
    return list(found.values())


def _add(interpreter: Interpreter, each: _Field, title: str) -> None:
    default, meta, text, is_argument = _default(interpreter, each)
    if not is_argument:
        return
    kwargs: dict[str, Value] = {"dest": each.name, "default": default}
    texts = {"default": text}
    options = [_option(each.name)]
    shape = _shape(interpreter, each.annotation, each.file)
    if shape is None and meta is None:
        shape = {"type": Unknown(ast.unparse(each.annotation))}
    kwargs |= shape or {}
    texts["type"] = ast.unparse(each.annotation)
    kind = kwargs.get("type")
    if isinstance(kind, External) and kind.name == "bool":
        del kwargs["type"]
        kwargs["action"] = "store_true" if default is False or default == 0 else "store_false"
        if kwargs["action"] == "store_false":
            options = [_option(f"no_{each.name}"), _option(f"disable_{each.name}")]
    given = dict(meta or {})
    names = given.pop("arg_names", None)
    if isinstance(names, list):
        options = [name for name in names if isinstance(name, str)]
    kwargs |= {str(name): value for name, value in given.items()}
    interpreter.found.events.append(
        Call(
            options=tuple(options),
            kwargs=kwargs,
            texts=texts,
            group=title,
            owner=each.owner,
            where=f"{each.file.path}:{each.line}",
        )
    )


def _default(interpreter: Interpreter, each: _Field) -> tuple[Value, dict[Any, Value] | None, str, bool]:
    """Return the default of a field, its `argparse_meta`, the source of the default, and whether it is an argument."""
    node = each.default
    if node is None:
        return Unknown(each.name), None, "", True
    is_call = isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "field"
    if not is_call or not isinstance(node, ast.Call):
        return interpreter.value(node, ({},), each.file), None, ast.unparse(node), True
    given = {word.arg: word.value for word in node.keywords if word.arg is not None}
    values = {name: interpreter.value(value, ({},), each.file) for name, value in given.items()}
    metadata = values.get("metadata")
    meta = metadata.get("argparse_meta") if isinstance(metadata, dict) else None
    text = ast.unparse(given.get("default", given.get("default_factory", node)))
    default = values.get("default", Unknown(text))
    factory = given.get("default_factory")
    if isinstance(factory, ast.Lambda):
        default = interpreter.value(factory.body, ({},), each.file)
    elif isinstance(factory, ast.Name) and factory.id in ("list", "dict"):
        default = [] if factory.id == "list" else {}
    return default, meta if isinstance(meta, dict) else None, text, values.get("init") is not False


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def _shape(interpreter: Interpreter, node: ast.expr, file: SourceFile) -> dict[str, Value] | None:
    """Return type, nargs and choices of an annotation; None where such a factory cannot infer them."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        try:
            return _shape(interpreter, ast.parse(node.value, mode="eval").body, file)
        except SyntaxError:
            return None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        parts = list(_united(node))
        is_optional = len(parts) == _OPTIONAL and ast.unparse(parts[1]) == "None"
        return _shape(interpreter, parts[0], file) if is_optional else None
    if isinstance(node, ast.Subscript):
        return _generic(interpreter, node, file)
    value = interpreter.value(node, ({},), file)
    if isinstance(value, ClassValue) and interpreter.modules.is_enum(value):
        return {"type": Unknown(value.node.name), "choices": interpreter.modules.members(value)}
    return {"type": value} if isinstance(value, (External, ClassValue)) else None


def _generic(interpreter: Interpreter, node: ast.Subscript, file: SourceFile) -> dict[str, Value] | None:
    name = ast.unparse(node.value).rpartition(".")[2]
    inside = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
    if name == "Optional":
        return _shape(interpreter, inside[0], file)
    if name == "Union":
        is_optional = len(inside) == _OPTIONAL and ast.unparse(inside[1]) in ("None", "type(None)")
        return _shape(interpreter, inside[0], file) if is_optional else None
    if name in ("list", "List") and len(inside) == 1:
        shape = _shape(interpreter, inside[0], file)
        return None if shape is None else {**shape, "nargs": "+"}
    if name == "Literal":
        choices = [interpreter.value(each, ({},), file) for each in inside]
        kind = type(choices[0]).__name__ if choices and isinstance(choices[0], (str, int, float)) else "str"
        return {"type": External(kind), "choices": choices}
    return None


def _united(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        yield from _united(node.left)
        yield from _united(node.right)
    else:
        yield node
