"""Where in the source a record, such as a row or a rule, is declared: the place that writes its name."""

import ast
import sys
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_ROOT = Path(__file__).parent.parent


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """A text in the source, and the calls and definitions around it, the nearest first."""

    file: Path
    line: int
    around: tuple[ast.AST, ...]


def declared_at(names: Iterable[str], folders: Iterable[Path], beside: Collection[str] = ()) -> str:
    """Return `file:line` of the place that writes a record's name, of a package of ours from its root; "": none does.

    A place with one of the other texts near it wins over one without, then the first folder.

    Args:
        names: a rule's id or a field's path, and the parts of it that a table may hold instead.
        beside: other texts of the declaration, such as its arguments, in any spelling.
    """
    wanted, names = frozenset(map(_plain, beside)), tuple(names)
    groups = [[place for name in names for place in _texts(folder).get(name, ())] for folder in folders]
    places = [(order, place) for order, group in enumerate(groups) for place in group]
    if not places:
        return ""
    best = min(places, key=lambda each: _rank(each[0], each[1], wanted))[1] if wanted else places[0][1]
    return f"{shown(best.file)}:{best.line}"


def _rank(order: int, place: _Place, wanted: frozenset[str]) -> tuple[int, int, int]:
    """Return what the best place has least of: its distance to a text wanted, its folder's order, its depth."""
    return _distance(place, wanted), order, len(place.around)


def _distance(place: _Place, wanted: frozenset[str]) -> int:
    """Return how many calls or definitions stand between a text and one of those wanted; none is near: very many."""
    for number, node in enumerate(place.around):
        texts = (each.value for each in ast.walk(node) if isinstance(each, ast.Constant))
        if any(isinstance(text, str) and _plain(text) in wanted for text in texts):
            return number
    return sys.maxsize


def shown(file: Path | str) -> str:
    """Return a path from the root of this program; as it is, if it is not below it."""
    path = Path(file)
    return str(path.relative_to(_ROOT)) if path.is_relative_to(_ROOT) else str(file)


def _plain(text: str) -> str:
    return text.replace("-", "_")


@cache
def _texts(folder: Path) -> dict[str, list[_Place]]:
    found: dict[str, list[_Place]] = {}
    for file in sorted(folder.rglob("*.py")):
        for text, place in _of_file(file):
            found.setdefault(text, []).append(place)
    return found


def _of_file(file: Path) -> Iterator[tuple[str, _Place]]:
    waiting: list[tuple[ast.AST, tuple[ast.AST, ...]]] = [(ast.parse(file.read_text(encoding="utf-8")), ())]
    while waiting:
        node, around = waiting.pop()
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value, _Place(file=file, line=node.lineno, around=around)
        if isinstance(node, ast.Call | ast.FunctionDef | ast.Assign | ast.AnnAssign):
            around = (node, *around)
        waiting.extend((child, around) for child in reversed(list(ast.iter_child_nodes(node))))
