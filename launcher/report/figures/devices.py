"""The devices of a job as a grid: a row a node, coloured by pipeline stage, with the groups of each rank."""

from collections.abc import Sequence
from typing import Any

from launcher.report.figures.chart import BLUE, PALETTE, RED, Chart, layout
from launcher.report.placement import Placement, shown_ranks

# Devices beside each other; a node with more takes several rows. Rows that are drawn.
_COLUMNS, _MOST_ROWS = 16, 96
# On these the number is white.
_DARK = (BLUE, RED)


def devices_chart(placement: Placement, name: str = "devices") -> Chart:
    """Return the grid; nodes that do the same work are one row, and hovering a device names its groups.

    Each device has in `customdata` its first rank and, by the order of `layout.meta.axes`, the number of its group.
    """
    kinds = placement.kinds()
    width = min(placement.devices_per_node, _COLUMNS)
    per_node = -(-placement.devices_per_node // width)
    drawn = kinds[: max(1, _MOST_ROWS // per_node)]
    cells = [_cell(placement, nodes, local) for nodes in drawn for local in range(placement.devices_per_node)]
    rows = len(drawn) * per_node
    places = [divmod(index, placement.devices_per_node) for index in range(len(cells))]
    stages = placement.axis("pp")
    x = [local % width for _, local in places]
    y = [row * per_node + local // width for row, local in places]
    colours = [PALETTE[stages.index(cell["rank"]) % len(PALETTE)] for cell in cells]
    world = placement.nodes * placement.devices_per_node
    sizes = ", ".join(f"{axis.name} {axis.size}" for axis in placement.axes)
    left = len(kinds) - len(drawn)
    summary = f"{placement.nodes:,} × {placement.devices_per_node} devices, {world:,} ranks: {sizes}. "
    summary += "Colour and number are the pipeline stage."
    summary += f" {left:,} more kinds of nodes are not drawn." if left else ""
    return Chart(
        name=name,
        title="What trains where",
        summary=summary,
        data=[
            {
                "type": "scatter",
                "mode": "markers+text",
                "showlegend": False,
                "x": x,
                "y": y,
                "text": [str(stages.index(cell["rank"])) for cell in cells],
                "textfont": {"size": 10, "color": ["#fff" if each in _DARK else "#000" for each in colours]},
                "marker": {"symbol": "square", "size": 26, "color": colours, "line": {"width": 0}},
                "customdata": [[cell["rank"], *cell["groups"], cell["text"]] for cell in cells],
                "hovertemplate": f"%{{customdata[{len(placement.axes) + 1}]}}<extra></extra>",
            }
        ],
        layout=layout(
            height=80 + 34 * rows,
            x={"title": {"text": "device of the node"}, "range": [-0.6, width - 0.4], "dtick": max(1, width // 8)}
            | _still(),
            y={
                "range": [rows - 0.4, -0.6],
                "tickvals": [row * per_node for row in range(len(drawn))],
                "ticktext": [_nodes(nodes) for nodes in drawn],
            }
            | _still(),
            hovermode="closest",
            meta={
                "axes": [axis.name for axis in placement.axes],
                "sizes": [axis.size for axis in placement.axes],
                "columns": width,
            },
        ),
        head=("group", "ranks in a group", "groups", "the first groups"),
        rows=[
            (
                axis.name,
                str(axis.size),
                f"{world // axis.size:,}",
                "; ".join(shown_ranks(group) for group in _first_groups(placement, axis.name)),
            )
            for axis in placement.axes
        ],
    )


def _still() -> dict[str, Any]:
    return {"fixedrange": True, "showgrid": False}


def _cell(placement: Placement, nodes: Sequence[int], local: int) -> dict[str, Any]:
    rank = nodes[0] * placement.devices_per_node + local
    equal = f" and {len(nodes) - 1:,} nodes that do the same" if len(nodes) > 1 else ""
    lines = [f"<b>rank {rank}</b>: device {local} of node {nodes[0]}{equal}"]
    for axis in (each for each in placement.axes if each.size > 1):
        lines.append(f"{axis.name} {axis.index(rank)} of {axis.size}: ranks {shown_ranks(axis.group(rank))}")
    groups = [axis.group(rank)[0] for axis in placement.axes]
    return {"rank": rank, "groups": groups, "text": "<br>".join(lines)}


def _nodes(nodes: Sequence[int]) -> str:
    if len(nodes) == 1:
        return f"node {nodes[0]}"
    if nodes[-1] - nodes[0] == len(nodes) - 1:
        return f"nodes {nodes[0]}–{nodes[-1]}"
    return f"node {nodes[0]} and {len(nodes) - 1:,} more"


def _first_groups(placement: Placement, name: str) -> list[range]:
    """Return up to three groups of an axis, by their first ranks."""
    axis, world = placement.axis(name), placement.nodes * placement.devices_per_node
    found: dict[int, range] = {}
    for rank in range(world):
        group = axis.group(rank)
        found.setdefault(group[0], group)
        if len(found) == 3:
            break
    return list(found.values())
