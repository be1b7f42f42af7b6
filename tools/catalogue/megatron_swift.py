"""Megatron-SWIFT (`megatron sft|pt|rlhf|export`): reads ms-swift's argument dataclasses, 3.x and 4.x."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from backends.megatron.parser_source import CLASSES
from launcher.catalogue.checkout.classes import Package
from launcher.catalogue.checkout.commands import outside_bases, rows_of_commands
from launcher.catalogue.checkout.rows import Row


def classes_of(exists: Callable[[str], object]) -> dict[str, str]:
    """Return the arguments class of each command, where it exists."""
    found = {command: next(filter(exists, names), None) for command, names in CLASSES.commands.items()}
    return {command: name for command, name in found.items() if name is not None}


def entry_classes(package: Package) -> dict[str, str]:
    """Return the arguments class of each command that this version's command line has."""
    return CLASSES.classes_in(package)


def extract(root: Path) -> tuple[dict[str, object], list[Row]]:
    """Return the head (commands) and the rows of a checkout, or of the folder that holds an installed `swift`."""
    package = Package(root=root, folders=tuple(folder for folder in CLASSES.folders if (root / folder).is_dir()))
    classes = entry_classes(package)
    rows = rows_of_commands(package, classes)
    outside = outside_bases(package, classes)
    if outside:
        raise LookupError(f"base classes outside the folders read: {', '.join(sorted(outside))}")
    return {"style": "hf", "commands": list(classes)}, rows
