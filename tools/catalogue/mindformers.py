"""MindFormers: the YAML sections of the static-graph trainer, read from source."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from launcher.catalogue.checkout.classes import ClassSource, Module, Package, Unknown, dataclass_fields, evaluate
from tools.catalogue import mindformers_model
from tools.catalogue.mindformers_types import MINDSPORE_CONTEXT, TYPES, annotation_type, value_type
from tools.catalogue.writer import Row

_TEMPLATE = "mindformers/tools/register/template.py"
# Registered kinds whose keys lie below one YAML section, whatever the `type`.
_SECTIONS = {
    "OPTIMIZER": "optimizer",
    "LR": "lr_schedule",
    "WRAPPER": "runner_wrapper",
    "DATASET": "train_dataset",
    "DATASET_LOADER": "train_dataset.data_loader",
    "TRAINER": "trainer",
}
# What MindFormers passes itself; a YAML cannot.
_NOT_KEYS = {"get", "pop", "items", "keys", "values", "update", "data_size", "rank_id", "profile_cb"}
# A base without __init__: subclasses take what they declare (mindspore 2.7.0 train/callback/_callback.py:110).
_WITHOUT_CONSTRUCTOR = {"Callback"}
_INTERNAL = {
    "params",
    "network",
    "optimizer",
    "parallel_config",
    "dataset_config",
    "model",
    "callbacks",
    "args",
    "kwargs",
}


def static(root: Path, mindspore: Path | None = None) -> tuple[dict[str, object], list[Row]]:
    """Return head and rows of the static-graph YAML with `use_legacy: False` (mcore).

    `mindspore` is the folder that holds MindSpore's package: what `context` and `parallel` hand on is declared there.
    """
    package = _static_package(root)
    template = package.module(root / _TEMPLATE)
    rows: dict[str, Row] = {}
    open_sections: list[str] = []
    strict_sections: list[str] = []
    for section, config in _template_sections(template):
        prefix = "" if section == "general_config" else f"{section}."
        if _is_open(config, template):
            open_sections.append(section)
        elif prefix:
            strict_sections.append(section)
        for row in _section_rows(config, template, prefix):
            rows[row["name"]] = row
    found = [*_registered_rows(package), *_dataset_rows(package), *mindformers_model.rows(package)]
    sections = {section.partition(".")[0] for section in [*rows, *open_sections]}
    extra = [row for row in _trainer_rows(package) if row["name"] not in sections]
    for row in [*found, *extra, *(_mindspore_rows(mindspore) if mindspore else ())]:
        known = rows.get(row["name"])
        if known is None:
            rows[row["name"]] = row
        elif not known.get("help"):
            known["help"] = row.get("help", "")
    for name, changes in TYPES.items():
        if name in rows:
            rows[name] |= changes
    # `model` takes anything; below model_config the mcore models refuse what they do not know.
    open_sections = ["model.arch" if section == "model" else section for section in open_sections]
    # Read with `use_legacy: True` only; rules distinguish the two kinds of file.
    strict_sections.remove("moe_config")
    open_sections.append("moe_config")
    head: dict[str, object] = {
        "style": "yaml",
        "open_sections": sorted({*open_sections, *(f"callbacks.{name}" for name in registered(package, "CALLBACK"))}),
        "strict_sections": sorted(strict_sections),
        "strict_types": _strict_types(package),
    }
    return head, list(rows.values())


def _static_package(root: Path) -> Package:
    """Return the package without its pynative trainer: what that registers, the static graph does not import."""
    modules = Package(root=root, folders=("mindformers",)).modules
    parsed = [module for module in modules if not module.path.startswith("mindformers/pynative/")]
    return Package(root=root, folders=("mindformers",), parsed=parsed)


def _template_sections(template: Module) -> Iterator[tuple[str, ast.ClassDef]]:
    """Yield the sections in the order of CONFIG_NAME_TO_CLASS; nested ones of another section are left out."""
    table = template.constants()["CONFIG_NAME_TO_CLASS"]
    assert isinstance(table, ast.Dict)
    classes = {node.name: node for node in template.tree.body if isinstance(node, ast.ClassDef)}
    for key, value in zip(table.keys, table.values, strict=True):
        assert isinstance(key, ast.Constant)
        yield str(key.value), classes[ast.unparse(value)]


def assigned(config: ast.ClassDef) -> Iterator[tuple[str, ast.expr, int]]:
    for node in config.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, node.value, node.lineno


def _is_open(config: ast.ClassDef, template: Module) -> bool:
    """Whether the section lets unknown keys pass (`_raise_error_for_unexpected_key`, inherited)."""
    for name, value, _ in assigned(config):
        if name == "_raise_error_for_unexpected_key":
            return evaluate(value) is False
    classes = {node.name: node for node in template.tree.body if isinstance(node, ast.ClassDef)}
    parents = [ast.unparse(base) for base in config.bases]
    return any(_is_open(classes[parent], template) for parent in parents if parent in classes)


def _section_rows(config: ast.ClassDef, template: Module, prefix: str) -> Iterator[Row]:
    # A SpecConfig or ListConfig uses its defaults only where the YAML leaves the whole section out.
    partial = any(ast.unparse(base) in ("SpecConfig", "ListConfig") for base in config.bases)
    required: list[str] = []
    seen: set[str] = set()
    for name, value, line in assigned(config):
        if name == "_required_keys":
            required = evaluate(value)
        if name.startswith("_") or "ListConfig" in {ast.unparse(base) for base in config.bases}:
            continue
        seen.add(name)
        row: Row = {"name": prefix + name, "source": f"{template.path}:{line}", "owner": config.name}
        try:
            default = evaluate(value)
        except Unknown as error:
            nested = next(
                (
                    node
                    for node in template.tree.body
                    if isinstance(node, ast.ClassDef) and str(error) == f"{node.name}()"
                ),
                None,
            )
            if nested is not None:
                yield row | {"type": "dict"}
                yield from _section_rows(nested, template, f"{prefix}{name}.")
            else:
                yield row | {"type": "any", "default_from": str(error)}
            continue
        row["type"] = value_type(default)
        row["nullable"] = default is None
        yield row if partial else row | {"default": default}
        if isinstance(default, dict):
            for key, item in default.items():
                yield {**row, "name": f"{prefix}{name}.{key}", "type": value_type(item), "nullable": False}
    for name in required:
        if name not in seen:
            yield {"name": prefix + name, "type": "any", "required": True, "owner": config.name,
                   "source": f"{template.path}:{config.lineno}"}  # fmt: skip


def registered(package: Package, kind: str) -> dict[str, ClassSource]:
    """Return the classes registered under a MindFormerModuleType, by the name that a YAML's `type` gives."""
    found: dict[str, ClassSource] = {}
    for sources in package.classes.values():
        for source in sources:
            for mark in source.node.decorator_list:
                if isinstance(mark, ast.Call) and ast.unparse(mark).startswith("MindFormerRegister.register("):
                    if ast.unparse(mark.args[0]) != f"MindFormerModuleType.{kind}":
                        continue
                    alias = next((argument.value for argument in mark.keywords if argument.arg == "alias"), None)
                    found[evaluate(alias) if alias is not None else source.name] = source
    return dict(sorted(found.items()))


def _strict_types(package: Package) -> dict[str, list[str]]:
    """Return by section the classes that raise TypeError for a key that they do not declare."""
    sections = {**{kind: _SECTIONS[kind] for kind in ("OPTIMIZER", "LR", "WRAPPER")}, "CALLBACK": "callbacks"}
    return {
        section: [name for name, source in registered(package, kind).items() if is_strict(source, package)]
        for kind, section in sections.items()
    }


def is_strict(source: ClassSource, package: Package) -> bool:
    """Return whether a class raises TypeError for a keyword that it does not declare."""
    chain = package.mro(source.name, source.module)
    for owner in chain:
        makers = [node for node in owner.node.body if isinstance(node, ast.FunctionDef)]
        found = [node for node in makers if node.name in ("__init__", "__new__")]
        if found:
            return all(node.args.kwarg is None for node in found)
    return set(chain[-1].bases) <= _WITHOUT_CONSTRUCTOR


def parameters(source: ClassSource, package: Package) -> Iterator[tuple[ast.arg, ast.expr | None, ClassSource]]:
    """Yield the parameters of `__init__` (or a `__new__` that takes more), own or inherited."""
    chain = package.mro(source.name, source.module)
    for owner in chain:
        makers = {node.name: node for node in owner.node.body if isinstance(node, ast.FunctionDef)}
        candidates = [makers[name] for name in ("__init__", "__new__") if name in makers]
        if not candidates:
            continue
        maker = max(candidates, key=lambda node: len(node.args.args) + len(node.args.kwonlyargs))
        positional = maker.args.args[1:]
        defaults: list[ast.expr | None] = [None] * (len(positional) - len(maker.args.defaults))
        defaults += maker.args.defaults[-len(positional) :] if positional else []
        yield from ((arg, value, owner) for arg, value in zip(positional, defaults, strict=False))
        pairs = zip(maker.args.kwonlyargs, maker.args.kw_defaults, strict=True)
        yield from ((arg, value, owner) for arg, value in pairs)
        return


def parameter_row(name: str, arg: ast.arg, value: ast.expr | None, owner: ClassSource) -> Row:
    row: Row = {"name": name, "source": owner.at(arg), "type": "any"}
    default: Any = ...
    if value is not None:
        try:
            default = evaluate(value, owner.module.constants())
        except Unknown as error:
            row["default_from"] = str(error)
    if arg.annotation is not None:
        row["type"] = annotation_type(arg.annotation)
    elif default is not ...:
        row["type"] = value_type(default)
    if default is not ...:
        row |= {"default": default, "nullable": default is None}
    return row


def _registered_rows(package: Package) -> Iterator[Row]:
    """Yield the keys of the `type`d sections: one row per key, its owner naming the types that take it."""
    for kind, section in _SECTIONS.items():
        merged: dict[str, list[tuple[str, Row]]] = {}
        for type_name, source in registered(package, kind).items():
            for arg, value, owner in parameters(source, package):
                if arg.arg not in _INTERNAL:
                    row = parameter_row(f"{section}.{arg.arg}", arg, value, owner)
                    merged.setdefault(arg.arg, []).append((type_name, row))
        for entries in merged.values():
            yield merge(entries)
    for type_name, source in registered(package, "CALLBACK").items():
        for arg, value, owner in parameters(source, package):
            if arg.arg not in _INTERNAL:
                yield parameter_row(f"callbacks.{type_name}.{arg.arg}", arg, value, owner) | {"owner": type_name}


def merge(entries: list[tuple[str, Row]]) -> Row:
    """Return one row for a key that several `type`s take; a default only where they agree."""
    first = dict(entries[0][1])
    kinds = {part for _, row in entries for part in str(row["type"]).split("|")}
    first["type"] = "any" if "any" in kinds else "|".join(sorted(kinds))
    first["nullable"] = any(row.get("nullable") for _, row in entries)
    first["owner"] = ", ".join(name for name, _ in entries)
    defaults = [row.get("default", ...) for _, row in entries]
    if any(default != defaults[0] for default in defaults):
        first.pop("default", None)
    return first


def _trainer_rows(package: Package) -> Iterator[Row]:
    """Yield top-level keys outside the template: it warns that they are useless, yet the trainer reads them."""
    seen: set[str] = set()
    for module in package.modules:
        if not module.path.startswith("mindformers/trainer/") or module.path.endswith("_args.py"):
            continue
        for node in ast.walk(module.tree):
            name, line = _config_read(node) or ("", 0)
            if name and name not in seen and name not in _NOT_KEYS:
                seen.add(name)
                yield {"name": name, "type": "any", "owner": "trainer", "source": f"{module.path}:{line}",
                       "help": "read by the trainer, though the template calls it useless"}  # fmt: skip


def _config_read(node: ast.AST) -> tuple[str, int] | None:
    holders = ("config", "self.config")
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and ast.unparse(node.value) in holders:
        return node.attr, node.lineno
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("config.get", "self.config.get"):
        return (str(evaluate(node.args[0])), node.lineno) if isinstance(node.args[0], ast.Constant) else None
    return None


def _dataset_rows(package: Package) -> Iterator[Row]:
    """Yield the keys of a Megatron data loader's `config`, as MegatronDatasetBuilder reads them."""
    fields = dataclass_fields(package.mro("GPTDatasetConfig"))
    builder = package.mro("MegatronDatasetBuilder")[0]
    for keyword in (
        argument for node in ast.walk(builder.node) if isinstance(node, ast.Call) for argument in node.keywords
    ):
        for call in (node for node in ast.walk(keyword.value) if isinstance(node, ast.Call)):
            if ast.unparse(call.func) != "self.config.get":
                continue
            name = f"train_dataset.data_loader.config.{evaluate(call.args[0])}"
            default = evaluate(call.args[1]) if len(call.args) > 1 else None
            field = fields.get(keyword.arg or "")
            direct = call is keyword.value and field is not None
            kind = annotation_type(field.annotation) if direct and field else value_type(default)
            yield {"name": name, "type": kind, "default": default, "nullable": default is None,
                   "owner": builder.name, "source": builder.at(call)}  # fmt: skip


def _mindspore_rows(root: Path) -> Iterable[Row]:
    """Yield what `context` and `parallel` hand on to MindSpore: the keyword lists of its own checks."""
    source = root / "mindspore" / "context.py"
    tree = ast.parse(source.read_text(encoding="utf-8"))
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    for section, name in MINDSPORE_CONTEXT.items():
        for mark in functions[name].decorator_list:
            if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "args_type_check":
                for argument in mark.keywords:
                    kind = annotation_type(argument.value)
                    yield {"name": f"{section}.{argument.arg}", "type": kind, "owner": f"mindspore.{name}",
                           "source": f"mindspore/context.py:{mark.lineno}"}  # fmt: skip
