"""MindSpeed-LLM's `train_fsdp2.py`: a YAML file plus dotted overrides, read from its argument dataclasses."""

from __future__ import annotations

import ast
from pathlib import Path

from launcher.catalogue.checkout.classes import Package, dataclass_fields
from launcher.catalogue.checkout.hf_parser import argument
from tools.catalogue.writer import Row


def extract(checkout: Path) -> tuple[dict[str, object], list[Row]]:
    """Return head and rows: `model.…`, `data.…`, `parallel.…` of the root class `Arguments`."""
    package = Package(root=checkout, folders=("mindspeed_llm/fsdp2", "train_fsdp2.py"))
    rows: list[Row] = []
    for section in dataclass_fields(package.mro("Arguments")).values():
        call = section.call()
        factory = next((arg.value for arg in call.keywords if arg.arg == "default_factory"), None) if call else None
        if not isinstance(factory, ast.Name):
            raise LookupError(f"{section.source}: section {section.name} has no default_factory")
        for field in dataclass_fields(package.mro(factory.id)).values():
            row = argument(field)
            # This parser makes no `no_X` twins, and takes lists and mappings as a YAML has them.
            row.pop("negation", None)
            kinds = {"json": "json|dict|list|str"}
            rows.append(row | {"name": f"{section.name}.{field.name}", "type": kinds.get(row["type"], row["type"])})
    return {"style": "yaml"}, rows
