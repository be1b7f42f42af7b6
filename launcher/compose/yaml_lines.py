"""Line numbers of YAML keys, so that values and errors name the place where they were written."""

import os
from pathlib import Path

import yaml

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def key_lines(path: Path) -> dict[str, int]:
    """Return the line (from 1) of every key of a YAML file, by dotted path; empty for a file that is not a mapping.

    Raises:
        yaml.YAMLError: the file is not YAML; the error carries line and column.
    """
    root = yaml.compose(path.read_text(encoding="utf-8"), Loader=_Loader)
    lines: dict[str, int] = {}
    if isinstance(root, yaml.MappingNode):
        _collect(root, "", lines)
    return lines


def _collect(node: yaml.MappingNode, prefix: str, lines: dict[str, int]) -> None:
    for key, value in node.value:
        path = f"{prefix}{key.value}"
        lines[path] = key.start_mark.line + 1
        if isinstance(value, yaml.MappingNode):
            _collect(value, f"{path}.", lines)


def shown(path: Path) -> str:
    """Return a path as a user would type it: relative to the current folder, or to the program's own folders."""
    for base in (Path.cwd(), Path(__file__).resolve().parent.parent / "_data", Path(__file__).resolve().parents[2]):
        if path.is_relative_to(base):
            return os.path.relpath(path, base)
    return str(path)
