"""Memory of each pipeline stage on its fullest rank, stacked by kind, against the device's."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from launcher.estimate.memory import GIB
from launcher.estimate.result import MEMORY_PARTS, Estimate, StageMemory
from launcher.report.figures.chart import BLUE, GREEN, GREY, ORANGE, RED, SKY, Chart, layout, row_height, stacked_bars

PARTS = dict(zip(MEMORY_PARTS, (BLUE, SKY, GREEN, ORANGE, GREY), strict=True))
KINDS = (*PARTS.items(), ("reserve", "#c7c7c7"))


def kinds_of(stage: StageMemory) -> dict[str, int]:
    """Return the bytes of a stage by kind; reserve is what the allocator holds beside tensors at the peak."""
    sizes = {name: int(getattr(stage, name)) for name in PARTS}
    return {**sizes, "reserve": stage.peak_reserved - stage.peak_allocated}


def folded(stages: Sequence[StageMemory]) -> Iterator[tuple[str, StageMemory]]:
    """Yield stages with their labels; consecutive ones of the same memory are one."""
    for _, group in groupby(stages, key=kinds_of):
        equal = list(group)
        first, last = equal[0].stage, equal[-1].stage
        yield (f"stage {first}" if first == last else f"stages {first}–{last} ({len(equal)} equal)"), equal[0]


def memory_bars(rows: Sequence[tuple[str, StageMemory]]) -> list[dict[str, Any]]:
    """Return the memory of labelled stages in GiB as bars, a trace for each kind."""
    parts = ((kind, colour, [round(kinds_of(stage)[kind] / GIB, 3) for _, stage in rows]) for kind, colour in KINDS)
    return stacked_bars((label for label, _ in rows), "%{x:.2f} GiB", parts)


def memory_chart(answer: Estimate, name: str = "memory") -> Chart:
    """Return the memory of all stages in GiB; equal neighbours are one bar."""
    rows = list(folded(answer.stages))
    labels = [label for label, _ in rows]
    data = memory_bars(rows)
    fullest, usable = answer.fullest, None
    summary = f"Stage {fullest.stage} needs most: {fullest.peak_reserved / GIB:.1f} GiB reserved"
    shapes = []
    if answer.capacity is not None:
        usable = (answer.capacity - answer.outside) / GIB
        summary += f", of {usable:.1f} GiB usable on a device of {answer.capacity / GIB:g} GiB"
        line = {"color": RED, "dash": "dash", "width": 2}
        shapes = [{"type": "line", "x0": usable, "x1": usable, "yref": "paper", "y0": 0, "y1": 1, "line": line}]
        # For the legend: a shape has no entry there.
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": f"{usable:.1f} GiB usable",
                "x": [usable, usable],
                "y": [labels[0], labels[-1]],
                "line": line,
                "hoverinfo": "skip",
            }
        )
    largest = max(usable or 0.0, *(stage.peak_reserved / GIB for stage in answer.stages))
    height = 110 + len(rows) * row_height(len(rows), least=14, most=34, total=420)
    return Chart(
        name=name,
        title="Memory of a device by pipeline stage",
        summary=f"{summary}.",
        data=data,
        layout=layout(
            height=height,
            x={"title": {"text": "GiB on the fullest rank"}, "range": [0, 1.06 * largest], "fixedrange": True},
            y={"autorange": "reversed", "fixedrange": True},
            barmode="stack",
            bargap=0.25,
            shapes=shapes,
        ),
        head=("stages", *(kind for kind, _ in KINDS), "peak"),
        rows=[
            (label, *(f"{size / GIB:.2f}" for size in kinds_of(stage).values()), f"{stage.peak_reserved / GIB:.2f}")
            for label, stage in rows
        ],
    )
