"""The nodes of a plan, and as plain data: those that differ only in their rank are one entry, whatever their number."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from launcher.records import dataclass

# In an entry of several nodes: the rank of each.
RANK = "{rank}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlan:
    """What runs on one node: one command, which starts that node's processes."""

    rank: int
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str = "."


def node_trees(nodes: Sequence[NodePlan]) -> list[dict[str, Any]]:
    """Return the entries of nodes in their order.

    One node: `rank`, `env`, `argv`, `workdir`. Several that are the same but for their rank: `ranks` (first and last)
    in place of `rank`, and `{rank}` where each has its own.
    """
    return list(_entries(nodes))


def _entries(nodes: Sequence[NodePlan]) -> Iterator[dict[str, Any]]:
    start = 0
    while start < len(nodes):
        template = _template(nodes[start], nodes[start + 1]) if start + 1 < len(nodes) else None
        end = start + 1
        while template is not None and end < len(nodes) and _of_rank(template, nodes[end].rank) == _texts(nodes[end]):
            end += 1
        if template is None or end == start + 1:
            yield {"rank": nodes[start].rank, **_tree(nodes[start], _texts(nodes[start]))}
        else:
            ranks = [nodes[start].rank, nodes[end - 1].rank]
            yield {"ranks": ranks, **_tree(nodes[start], template)}
        start = end


def _texts(node: NodePlan) -> list[str]:
    return [*node.env, *node.env.values(), *node.argv, node.workdir]


def _tree(node: NodePlan, texts: Sequence[str]) -> dict[str, Any]:
    count = len(node.env)
    return {
        "env": dict(zip(texts[:count], texts[count : 2 * count], strict=True)),
        "argv": list(texts[2 * count : -1]),
        "workdir": texts[-1],
    }


def _template(node: NodePlan, following: NodePlan) -> list[str] | None:
    """Return the texts of two consecutive nodes with a placeholder for their ranks; None: they differ otherwise."""
    one, other = _texts(node), _texts(following)
    if following.rank != node.rank + 1 or len(one) != len(other) or any(RANK in text for text in one):
        return None
    found = []
    for text, next_text in zip(one, other, strict=True):
        placed = text if text == next_text else _placed(text, next_text, str(node.rank), str(following.rank))
        if placed is None:
            return None
        found.append(placed)
    return found


def _placed(text: str, next_text: str, rank: str, next_rank: str) -> str | None:
    """Return a text with the placeholder where two nodes have their ranks: all of it, or its end (`--node_rank=3`)."""
    same = text.removesuffix(rank)
    return f"{same}{RANK}" if text.endswith(rank) and next_text == f"{same}{next_rank}" else None


def _of_rank(template: Sequence[str], rank: int) -> list[str]:
    return [text.replace(RANK, str(rank)) for text in template]
