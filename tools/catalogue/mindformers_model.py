"""MindFormers' `model.model_config` under mcore: alias map, transformer config fields, models' own parameters."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from launcher.catalogue.checkout.classes import ClassSource, FieldSource, Package, Unknown, dataclass_fields, evaluate
from tools.catalogue.mindformers_types import annotation_type, is_optional, value_type
from tools.catalogue.writer import Row

_UTILS = "mindformers/parallel_core/transformer_config_utils.py"
_PREFIX = "model.model_config."


def rows(package: Package) -> Iterator[Row]:
    """Yield one row per setting: its mcore name where a YAML may use it, every other accepted spelling as an alias."""
    fields = _config_fields(package)
    taken: set[str] = set()
    for target, (keys, convert, line) in _alias_map(package).items():
        name = target if target in keys else keys[-1]
        aliases = [key for key in keys if key != name]
        taken |= {name, target, *aliases}
        row: Row = {
            "name": _PREFIX + name,
            "dest": target,
            "aliases": [_PREFIX + alias for alias in aliases],
            "source": f"{_UTILS}:{line}",
            "owner": "TransformerConfig",
        }
        field = fields.get(target)
        row |= _field_row(field) if field else {"type": "any"}
        if convert:
            # What the user writes is converted first, so that the field's own type does not bind.
            row |= {"type": "|".join(dict.fromkeys([*row["type"].split("|"), "bool", "str"]))}
            row["help"] = f"converted by {convert}"
        yield row
    for row in [*_model_parameters(package, taken, legacy=False), *_model_parameters(package, taken, legacy=True)]:
        taken.add(str(row["name"]).removeprefix(_PREFIX))
        yield row
    for name, line in _skipped(package).items():
        if name not in taken:
            yield {"name": _PREFIX + name, "type": "any", "owner": "DEFAULT_WHITE_KEY", "source": f"{_UTILS}:{line}",
                   "help": "accepted, not handed to the mcore model"}  # fmt: skip


def _alias_map(package: Package) -> dict[str, tuple[list[str], str | None, int]]:
    """Return COMMON_CONFIG_MAPPING turned round: mcore key → accepted keys, converter, line."""
    module = package.module(package.root / _UTILS)
    table = module.constants()["COMMON_CONFIG_MAPPING"]
    assert isinstance(table, ast.Dict)
    found: dict[str, tuple[list[str], str | None, int]] = {}
    for key, value in zip(table.keys, table.values, strict=True):
        assert key is not None
        keys = evaluate(key)
        keys = keys if isinstance(keys, list) else [keys]
        convert = None
        if isinstance(value, ast.Tuple):
            convert = ast.unparse(value.elts[1])
            value = value.elts[0]
        target = evaluate(value)
        before = found.get(target, ([], None, key.lineno))
        found[target] = ([*before[0], *keys], convert or before[1], before[2])
    return found


def _config_fields(package: Package) -> dict[str, FieldSource]:
    fields: dict[str, FieldSource] = {}
    # A dense model's config comes first: MLATransformerConfig changes some defaults (normalization, q_lora_rank …).
    for name in ("TransformerConfig", "MLATransformerConfig", "ModelParallelConfig"):
        chain = package.mro(name, package.module(package.root / _UTILS))
        fields = dataclass_fields(chain) | fields
    return fields


def _field_row(field: FieldSource) -> Row:
    """Return type and default of a dataclass field that a YAML value fills."""
    row: Row = {"type": annotation_type(field.annotation), "owner": field.owner.name}
    try:
        default = field.default()
    except Unknown as error:
        return row | {"default_from": str(error)}
    if default is ...:
        return row
    return row | {"default": default, "nullable": default is None or is_optional(field.annotation)}


def _model_parameters(package: Package, taken: set[str], *, legacy: bool) -> Iterator[Row]:
    """Yield what single models' configuration classes take besides (rope_scaling, layer_types …)."""
    merged: dict[str, Row] = {}
    for owner in _model_configs(package, legacy):
        maker = next(
            (node for node in owner.node.body if isinstance(node, ast.FunctionDef) and node.name == "__init__"), None
        )
        if maker is None:
            continue
        names = maker.args.args[1:]
        defaults: list[ast.expr | None] = [None] * (len(names) - len(maker.args.defaults))
        defaults += maker.args.defaults
        for arg, value in zip(names, defaults, strict=True):
            if arg.arg in taken:
                continue
            if arg.arg in merged:
                merged[arg.arg]["owner"] += f", {owner.name}"
                merged[arg.arg]["type"] = "any"
                continue
            kind = "any"
            if arg.annotation is not None:
                kind = annotation_type(arg.annotation)
            elif value is not None and isinstance(value, ast.Constant):
                kind = value_type(value.value)
            merged[arg.arg] = {"name": _PREFIX + arg.arg, "type": kind, "owner": owner.name, "source": owner.at(arg)}
            merged[arg.arg] |= {"type": "any", "group": "legacy", "help": "use_legacy: True only"} if legacy else {}
    yield from merged.values()


def _model_configs(package: Package, legacy: bool) -> Iterator[ClassSource]:
    for name in sorted(package.classes):
        for source in package.classes[name]:
            marks = [ast.unparse(mark) for mark in source.node.decorator_list]
            if any("MindFormerModuleType.CONFIG" in mark and ("legacy=False" not in mark) == legacy for mark in marks):
                yield source


def _skipped(package: Package) -> dict[str, int]:
    """Return the keys that the conversion passes over (DEFAULT_WHITE_KEY) and PretrainedConfig's own, by line."""
    found: dict[str, int] = {}
    for node in ast.walk(package.module(package.root / _UTILS).tree):
        if isinstance(node, ast.Set) and all(isinstance(item, ast.Constant) for item in node.elts):
            found |= {str(item.value): item.lineno for item in node.elts if isinstance(item, ast.Constant)}
    base = package.find("PretrainedConfig")
    # Its other methods pop arguments of their own, such as from_pretrained's `revision`.
    makers = [node for node in base.node.body if getattr(node, "name", "") == "__init__"] if base else []
    for node in (node for maker in makers for node in ast.walk(maker)):
        if (
            isinstance(node, ast.Call)
            and ast.unparse(node.func) == "kwargs.pop"
            and isinstance(node.args[0], ast.Constant)
        ):
            found.setdefault(str(node.args[0].value), node.lineno)
    # parallel_config's keys would be passed over here too: a user must be informed, so they stay unknown.
    return found
