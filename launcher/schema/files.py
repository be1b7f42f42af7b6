"""Where the schema of the installed version lies, and the line by which editors find it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from launcher.job.shipped import shipped

NAME = "schema.json"
# yaml-language-server reads it from the comment at the top: https://github.com/redhat-developer/yaml-language-server
_LINE = "# yaml-language-server: $schema="
_SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+@")
# Levels that are written over several lines: the document, its definitions, and their properties, one a line.
_WIDE = ("properties", "$defs")


def installed() -> Path:
    """Return the schema file that ships with the program, beside the groups: current, and read without a network."""
    return shipped("conf") / NAME


def editor_line(schema: Path | str, section: str = "") -> str:
    """Return the comment that names a schema to yaml-language-server.

    Args:
        schema: path; a relative one is read from the folder of the YAML file.
        section: of a file that fills one section: its name; "": a whole job.
    """
    path = str(schema)
    if not set(path) <= _SAFE:  # a blank would end the path
        path = Path(path).absolute().as_uri()
    return f"{_LINE}{path}{f'#/$defs/{section}' if section else ''}"


def with_editor_line(text: str, line: str) -> str:
    """Return the text of a YAML file with the line for editors, below its `# @package` header or first.

    They read it only in the comment that a file begins with.
    """
    head, newline, rest = text.partition("\n")
    if head.startswith("# @package"):
        return f"{head}{newline}{line}\n{rest}"
    return f"{line}\n{text}"


def is_editor_line(line: str) -> bool:
    """Return whether a line of a YAML file only tells editors its schema."""
    return line.startswith(_LINE)


def schema_text(schema: Mapping[str, Any]) -> str:
    """Return a schema as text: one property a line, so that a changed field is one changed line."""
    return _text(schema, "", wide=True) + "\n"


def _text(node: Mapping[str, Any], indent: str, *, wide: bool) -> str:
    lines = []
    for name, value in node.items():
        inner = wide and isinstance(value, Mapping) and (name in _WIDE or "properties" in value)
        own = _text(value, f"{indent} ", wide=True) if inner else json.dumps(value, ensure_ascii=False)
        lines.append(f"{indent} {json.dumps(name)}: {own}")
    return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
