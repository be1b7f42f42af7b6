"""Megatron-SWIFT (`megatron sft|pt|rlhf|export`): reads ms-swift's argument dataclasses, 3.x and 4.x."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tools.catalogue import hf_parser
from tools.catalogue.source import Package, dataclass_fields
from tools.catalogue.writer import Row

COMMANDS = ("sft", "pt", "rlhf", "export")
_CLASSES = {
    "sft": ("MegatronSftArguments", "MegatronTrainArguments"),
    "pt": ("MegatronPretrainArguments", "MegatronTrainArguments"),
    "rlhf": ("MegatronRLHFArguments",),
    "export": ("MegatronExportArguments",),
}
# 3.x kept them under argument/ and llm/argument/, 4.x under arguments/ and arguments/ of the package.
_FOLDERS = ("swift/megatron", "swift/llm/argument", "swift/arguments", "swift/ray", "swift/ray_utils")


def classes_of(exists: Callable[[str], object]) -> dict[str, str]:
    """Return the arguments class of each command, where it exists."""
    found = {command: next(filter(exists, names), None) for command, names in _CLASSES.items()}
    return {command: name for command, name in found.items() if name is not None}


def entry_classes(package: Package) -> dict[str, str]:
    """Return the arguments class of each command that this version's command line has."""
    commands = [command for command in COMMANDS if (package.root / f"swift/cli/_megatron/{command}.py").is_file()]
    classes = classes_of(package.find)
    missing = [command for command in commands if command not in classes]
    if missing:
        raise LookupError(f"megatron {', '.join(missing)}: no arguments class found in {package.root}")
    return {command: classes[command] for command in commands}


def extract(root: Path) -> tuple[dict[str, object], list[Row]]:
    """Return the head (commands) and the rows of a checkout, or of the folder that holds an installed `swift`."""
    package = Package(root=root, folders=tuple(folder for folder in _FOLDERS if (root / folder).is_dir()))
    classes = entry_classes(package)
    rows: dict[str, Row] = {}
    seen: dict[str, list[str]] = {}
    for command, name in classes.items():
        for field in dataclass_fields(package.mro(name)).values():
            if field.name.startswith("_"):
                continue  # the class's own state: __post_init__ overwrites what a user gives
            row = hf_parser.argument(field)
            seen.setdefault(field.name, []).append(command)
            first = rows.setdefault(field.name, row)
            if row.get("default") != first.get("default"):
                first.setdefault("command_defaults", {})[command] = row.get("default")
                if "negation" in row:
                    first["negation"] = row["negation"]
    for name, row in rows.items():
        if len(seen[name]) < len(classes):
            row["commands"] = seen[name]
    if package.missing_bases - {"object", "ABC", "Protocol", "Enum", "str"}:
        used = {base for name in classes.values() for owner in package.mro(name) for base in owner.bases}
        outside = sorted(used & package.missing_bases)
        if outside:
            raise LookupError(f"base classes outside the folders read: {', '.join(outside)}")
    return {"style": "hf", "commands": list(classes)}, list(rows.values())
