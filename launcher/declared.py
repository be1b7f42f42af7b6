"""Where in the source a record, such as a row or a rule, is declared."""

import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ast

Lines = tuple[tuple[str, int], ...]
_ROOT = Path(__file__).parent.parent
_DEPTH = 8


def calling_lines() -> Lines:
    """Return file and line of the callers of a record's `__init__`, the nearest first; for its `__post_init__`."""
    found: list[tuple[str, int]] = []
    frame = sys._getframe(2).f_back
    while frame is not None and len(found) < _DEPTH:
        found.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return tuple(found)


def declared_at(lines: Lines, name: str, engine: tuple[str, ...]) -> str:
    """Return `file:line` of the nearest caller that writes the record's name; of a package of ours, from its root.

    Args:
        lines: what `calling_lines` returned.
        name: text that the declaration writes: a field's path, a rule's id.
        engine: packages whose functions build records for others; they declare none.
    """
    files = [(file, line) for file, line in lines if not shown(file).startswith(engine) and Path(file).is_file()]
    # Tables may hold the last part of a path alone.
    for text in (name, *(name.split(".", number)[-1] for number in range(1, name.count(".") + 1))):
        found = _written(files, text) if text else ""
        if found:
            return found
    top = [(file, line) for file, line in files if _is_near(file, files[0][0]) and not _function(file, line)]
    return next((f"{shown(file)}:{line}" for file, line in (*top, *files)), "")


def _written(files: Iterable[tuple[str, int]], name: str) -> str:
    """Return where one of the callers writes a text: its function, else its module."""
    for file, line in files:
        first, last = _function(file, line) or (0, 0)
        found = [place for place, _ in _places(file).get(name, ()) if first <= place <= last]
        if found:
            return f"{shown(file)}:{min(found, key=lambda place: abs(place - line))}"
    for file, line in files:
        places = _places(file).get(name, ())
        if places:
            return f"{shown(file)}:{line if places[0][1] else places[0][0]}"
    return ""


def _is_near(file: str, other: str) -> bool:
    return Path(file).parent == Path(other).parent


def shown(file: str) -> str:
    """Return a path from the root of this program; as it is, if it is not below it."""
    path = Path(file)
    return str(path.relative_to(_ROOT)) if path.is_relative_to(_ROOT) else file


def _function(file: str, line: int) -> tuple[int, int] | None:
    """Return the first and last line of the function that a line belongs to; None: it belongs to the module."""
    return max(((first, last) for first, last in _functions(file) if first <= line <= last), default=None)


@cache
def _tree(file: str) -> "ast.Module":
    import ast

    return ast.parse(Path(file).read_text(encoding="utf-8"))


@cache
def _functions(file: str) -> tuple[tuple[int, int], ...]:
    import ast

    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return tuple((node.lineno, node.end_lineno or 0) for node in ast.walk(_tree(file)) if isinstance(node, kinds))


@cache
def _places(file: str) -> dict[str, tuple[tuple[int, bool], ...]]:
    """Return the lines of every text in a file, and whether a constant of the module holds just that text."""
    import ast

    alone = {id(node.value) for node in _tree(file).body if isinstance(node, ast.Assign)}
    found: dict[str, list[tuple[int, bool]]] = {}
    for node in ast.walk(_tree(file)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.setdefault(node.value, []).append((node.lineno, id(node) in alone))
    return {name: tuple(places) for name, places in found.items()}
