"""Writes catalogue files: one argument a line, only what differs from the usual, so that two versions diff readably."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

Row = dict[str, Any]
"""One argument as it stands in a catalogue file: the fields of `launcher.catalogue.catalogue.Argument`."""

_ORDER = (
    "name", "dest", "aliases", "type", "items", "nargs", "optional_value", "nullable", "default", "absent",
    "default_from", "command_defaults", "choices", "action", "const", "negation", "required", "group", "origin",
    "owner", "commands", "deprecated", "renamed_to", "since", "help", "source",
)  # fmt: skip
_USUAL: Mapping[str, Any] = {
    "type": "str",
    "action": "store",
    "required": False,
    "deprecated": False,
    "optional_value": False,
    "nullable": False,
}


def compact(row: Row, style: str) -> Row:
    """Return the row in its fixed key order without what the loader fills in by itself."""
    usual_dest = row["name"].replace("-", "_") if style == "argparse" else row["name"]
    unknown = set(row) - set(_ORDER)
    if unknown:
        raise ValueError(f"{row['name']}: unknown catalogue keys {sorted(unknown)}")
    kept: Row = {}
    for key in _ORDER:
        if key not in row:
            continue
        value = row[key]
        if key != "default" and (value is None or value in ((), [], {}, "") or _USUAL.get(key, ...) == value):
            continue
        if key == "dest" and value == usual_dest:
            continue
        kept[key] = value
    return kept


def render(head: Mapping[str, Any], rows: Iterable[Row]) -> str:
    """Return the text of a catalogue file; rows sorted by name."""
    lines = ["{"]
    for key, value in head.items():
        listed = isinstance(value, list) and any(isinstance(item, dict) for item in value)
        text = _lines(value) if listed else json.dumps(value, ensure_ascii=False)
        lines.append(f" {json.dumps(key)}: {text},")
    body = [
        "  " + json.dumps(compact(row, head["style"]), ensure_ascii=False)
        for row in sorted(rows, key=lambda row: str(row["name"]))
    ]
    lines += [' "arguments": [', ",\n".join(body), " ]", "}"]
    return "\n".join(lines) + "\n"


def _lines(items: list[Mapping[str, Any]]) -> str:
    return "[\n" + ",\n".join(f"  {json.dumps(item, ensure_ascii=False)}" for item in items) + "\n ]"


def write(path: Path, head: Mapping[str, Any], rows: Iterable[Row]) -> None:
    """Write a catalogue file, making its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render(head, rows), encoding="utf-8")
