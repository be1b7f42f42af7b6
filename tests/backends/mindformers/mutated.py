"""MindFormers' own files with one to three values changed, taken out, or made another type."""

import copy
import random
from collections.abc import Iterable, Iterator, Mapping
from typing import Any


def changed_file(tree: Mapping[str, Any], draw: random.Random) -> tuple[dict[str, Any], str]:
    """Return a changed copy of a configuration, and what was changed."""
    made = dict(copy.deepcopy(tree))
    return made, "; ".join(_change(made, draw) for _ in range(draw.choice((1, 1, 2, 3))))


def _change(tree: dict[str, Any], draw: random.Random) -> str:
    leaves = list(_leaves(tree))
    parent, key, path = draw.choice(leaves)
    old = parent[key]
    if isinstance(old, bool):
        new: Any = draw.choice((not old, "yes", None))
    elif isinstance(old, int | float):
        new = draw.choice((old * 2, old + 1, old - 1, old // 2, 0, -1, str(old)))
    elif isinstance(old, str):
        new = draw.choice(("", old + "x", 1, None))
    else:
        new = draw.choice((True, 1, "x"))
    if draw.random() < 0.2:
        del parent[key]
        return f"no {path}"
    parent[key] = new
    return f"{path}={new!r}"


def _leaves(tree: Any, path: str = "") -> Iterator[tuple[Any, Any, str]]:
    items: Iterable[tuple[Any, Any]] = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in items:
        below = f"{path}.{key}" if path else str(key)
        if isinstance(value, dict | list) and value:
            yield from _leaves(value, below)
        else:
            yield tree, key, below
