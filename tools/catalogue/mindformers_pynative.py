"""MindFormers: the `TrainConfig` of the pynative trainer, with the classes that its sections name, read from source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from launcher.catalogue.checkout.classes import FieldSource, Module, Package, Unknown, dataclass_fields
from launcher.catalogue.checkout.classes import evaluate as value_of
from launcher.catalogue.checkout.hf_parser import union
from tools.catalogue.mindformers import assigned, is_strict, merge, parameter_row, parameters, registered
from tools.catalogue.mindformers_refusals import Refusal, compared, of_built_values, of_method
from tools.catalogue.mindformers_types import annotation_type, is_optional
from tools.catalogue.writer import Row

_FOLDER = "mindformers/pynative"
_BUILDERS = f"{_FOLDER}/trainer/utils.py"
_TRAINER = f"{_FOLDER}/trainer/trainer.py"
# Section whose `type` is compared with names, function that does it, and its variable.
_TYPED = (
    ("optimizer", "_build_optimizer", "optim_type"),
    ("train_dataset.dataloader", "_build_dataset", "dataloader_type"),
)
_RUN_MODE = "self.config.run_mode"


def pynative(root: Path) -> tuple[dict[str, object], list[Row]]:
    """Return head and rows of the pynative `TrainConfig` (`context.mode: 1`, MindFormers 1.9 and later)."""
    package = Package(root=root, folders=(_FOLDER,))
    found = _Found(package)
    found.walk("TrainConfig", "")
    rows = {row["name"]: row for row in found.rows}
    builders, trainer = package.module(root / _BUILDERS), package.module(root / _TRAINER)
    strict: dict[str, list[str]] = {}
    for section, function, variable in _TYPED:
        rows[f"{section}.type"] |= {"choices": compared(_function(builders, function), variable)[0]}
    for row in _optimizer_rows(package, builders, strict):
        rows.setdefault(row["name"], row)
    if modes := compared(trainer.tree, _RUN_MODE)[0]:
        rows["run_mode"] |= {"choices": modes}
    callbacks = registered(package, "CALLBACK")
    for name, source in callbacks.items():
        found.refusals += [(f"callbacks.{name}", each) for each in of_method(source, "__init__")]
        for arg, value, owner in parameters(source, package):
            row = parameter_row(f"callbacks.{name}.{arg.arg}", arg, value, owner)
            rows[row["name"]] = row | {"owner": name}
    strict["callbacks"] = [name for name, source in callbacks.items() if is_strict(source, package)]
    found.refusals += [(built.section, each) for built, each in of_built_values(package, _FOLDER)]
    head: dict[str, object] = {
        "style": "yaml",
        "open_sections": sorted({*found.open_sections, *(f"callbacks.{name}" for name in callbacks)} - {""}),
        "strict_types": strict,
        "conditions": [
            {"section": section, "refused": each.text, "source": each.source}
            for section, each in found.refusals
            if each.text and not _took_choices(section, each, rows)
        ],
    }
    return head, list(rows.values())


def is_in(root: Path) -> bool:
    """Return whether a version has the pynative trainer."""
    return (root / _FOLDER / "config").is_dir()


def uncovered(root: Path) -> list[str]:
    """Return the lines of `__post_init__` that raise under conditions which are not written to the catalogue."""
    found = _Found(Package(root=root, folders=(_FOLDER,)))
    found.walk("TrainConfig", "")
    return [each.source for _, each in found.refusals if not each.text]


class _Found:
    """What the dataclasses of a configuration declare, from its root downwards."""

    def __init__(self, package: Package) -> None:
        self.package = package
        self.rows: list[Row] = []
        self.open_sections: list[str] = []
        self.refusals: list[tuple[str, Refusal]] = []

    def walk(self, name: str, prefix: str) -> None:
        chain = self.package.mro(name)
        if any(key == "allow_extra" and value_of(value) is True for key, value, _ in assigned(chain[0].node)):
            self.open_sections.append(prefix.rstrip("."))
        self.refusals += [(prefix.rstrip("."), each) for each in of_method(chain[0], "__post_init__")]
        for field in dataclass_fields(chain).values():
            nested = _nested(field, self.package)
            if nested and nested != "CallbackConfig":
                self.walk(nested, f"{prefix}{field.name}.")
                if is_optional(field.annotation):
                    row: Row = {"name": prefix + field.name, "owner": name, "source": field.source}
                    self.rows.append(row | {"type": "dict", "nullable": True, "default": None})
            else:
                self.rows.append(_row(field, name, prefix))


def _row(field: FieldSource, owner: str, prefix: str) -> Row:
    row: Row = {"name": prefix + field.name, "owner": owner, "source": field.source}
    try:
        default = field.default()
    except Unknown as error:
        row["default_from"] = str(error)
    else:
        # check_type refuses None where the annotation does not name it (pynative/config/utils.py:33 @2.1.0).
        required = default is ... or (default is None and not is_optional(field.annotation))
        row |= {"required": True} if required else {"default": default}
    row["type"] = annotation_type(field.annotation) + "|any" * _is_unchecked(field.annotation)
    row["nullable"] = is_optional(field.annotation)
    row["items"] = _items(field.annotation)
    return row


def _is_unchecked(annotation: ast.expr) -> bool:
    """Return whether a member is a plain `list`, `tuple` or `dict`: check_type lets everything pass as one of those."""
    names = (member.id for member in union(annotation) if isinstance(member, ast.Name))
    return not {"list", "tuple", "dict"}.isdisjoint(names)


def _items(annotation: ast.expr) -> str:
    """Return the types of the items of a list, joined with `|`; empty where any will do."""
    found: list[str] = []
    for member in union(annotation):
        if isinstance(member, ast.Subscript) and ast.unparse(member.value) in ("List", "list"):
            found.append(annotation_type(member.slice))
    return "" if "any" in found else "|".join(dict.fromkeys(found))


def _nested(field: FieldSource, package: Package) -> str | None:
    names = [node.id for node in ast.walk(field.annotation) if isinstance(node, ast.Name)]
    return next((name for name in names if name.endswith("Config") and package.find(name)), None)


def _took_choices(section: str, refusal: Refusal, rows: dict[str, Row]) -> bool:
    """Put what `key not in (...)` lists into the row of the key as choices; return whether the refusal is just that."""
    node = ast.parse(refusal.text, mode="eval").body
    if not (isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.NotIn) and isinstance(node.left, ast.Name)):
        return False
    row = rows.get(f"{section}.{node.left.id}")
    if row is None:
        return False
    row["choices"] = value_of(node.comparators[0])
    return True


def _function(module: Module, name: str) -> ast.FunctionDef:
    return next(node for node in ast.walk(module.tree) if isinstance(node, ast.FunctionDef) and node.name == name)


def _optimizer_rows(package: Package, builders: Module, strict: dict[str, list[str]]) -> Iterator[Row]:
    """Yield the parameters of the trainer's optimizers, one row a name; those without `**kwargs` are strict."""
    function = _function(builders, "_build_optimizer")
    merged: dict[str, list[tuple[str, Row]]] = {}
    strict["optimizer"] = []
    for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
        source = package.find(ast.unparse(call.func))
        if source is None or not any(argument.arg is None for argument in call.keywords):
            continue
        given = {argument.arg for argument in call.keywords}
        if is_strict(source, package):
            strict["optimizer"].append(source.name)
        for arg, value, owner in parameters(source, package):
            if arg.arg not in given:
                row = parameter_row(f"optimizer.{arg.arg}", arg, value, owner)
                merged.setdefault(arg.arg, []).append((source.name, row))
    for entries in merged.values():
        yield merge(entries)
