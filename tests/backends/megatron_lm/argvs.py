"""Command lines with Megatron's arguments as data: typed values, and values with the defaults filled in."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from launcher.catalogue.catalogue import Argument, Catalogue


def parse(args: Sequence[str], catalogue: Catalogue) -> dict[str, Any]:
    """Return the typed values of a command line, by argument name; the last of repeated arguments wins.

    Raises:
        KeyError: the catalogue has no such argument.
    """
    found: dict[str, Any] = {}
    position = 0
    while position < len(args):
        argument = catalogue.get(args[position])
        if argument is None or not args[position].startswith("--"):
            raise KeyError(args[position])
        position += 1
        values: list[str] = []
        while position < len(args) and not args[position].startswith("--"):
            values.append(args[position])
            position += 1
        found[argument.name] = True if argument.is_flag else _typed(argument, values)
    return found


def _typed(argument: Argument, values: list[str]) -> Any:
    typed = tuple(_convert(argument.type, value) for value in values)
    return typed if argument.is_list else typed[0]


def _convert(kind: str, text: str) -> Any:
    if kind == "int" or (kind == "expr" and text.lstrip("-").isdigit()):
        return int(text)
    return float(text) if kind == "float" else text


def effective(values: Mapping[str, Any], catalogue: Catalogue) -> dict[str, Any]:
    """Return what the program sees: every argument's destination with its value or default."""
    seen = {argument.dest: _comparable(argument.default) for argument in catalogue.arguments if argument.has_default}
    for name, value in values.items():
        argument = catalogue.get(name)
        assert argument is not None
        seen[argument.dest] = (argument.action != "store_false") if argument.is_flag else _comparable(value)
    return seen


def _comparable(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        items = [_comparable(item) for item in value]
        return items[0] if len(items) == 1 else items
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def corpus(path: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the launches of a corpus file of upstream scripts."""
    with path.open(encoding="utf-8") as lines:
        yield from (json.loads(line) for line in lines)
