"""One optimizer step of the pipeline on the time axis, as the simulator has it."""

from collections.abc import Iterable, Sequence
from typing import Any

from launcher.estimate.result import Estimate
from launcher.pipeline_schedule.order import Part
from launcher.pipeline_schedule.simulation import Event
from launcher.records import dataclass
from launcher.report.figures.chart import GREEN, ORANGE, PURPLE, RED, SKY, Chart, layout, row_height

_PARTS = (
    (Part.FORWARD, "forward", SKY),
    (Part.BACKWARD, "backward", ORANGE),
    (Part.INPUTS, "backward: gradients of inputs", RED),
    (Part.WEIGHTS, "backward: gradients of weights", PURPLE),
)
# A browser draws so many boxes and stays quick to zoom.
_MOST = 3000
# Decimal places of a second: a step of 10 ms has 10,000 of them.
_PLACES = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class _Drawn:
    """The steps that are drawn: all, or the first and the last ones, and the seconds between which none is."""

    events: Sequence[Event]
    left_out: int = 0
    gap: tuple[float, float] = (0.0, 0.0)


def timeline_chart(answer: Estimate, name: str = "timeline") -> Chart | None:
    """Return the pipeline's step in seconds; None: no times are known (`estimate(job, timeline=True)` has them)."""
    if answer.time is None or not answer.timeline:
        return None
    drawn, total = _drawn(answer.timeline), answer.time.step_s
    end = max(event.end for event in answer.timeline)
    data = [_bars(label, colour, (e for e in drawn.events if e.part == part)) for part, label, colour in _PARTS]
    data = [trace for trace in data if trace["x"]]
    stages = len(answer.stages)
    if total > end:
        text = "after the pipeline: reduction, gathering, optimizer<br>%{x:.4g} s<extra></extra>"
        after = {
            "y": list(range(stages)),
            "base": [round(end, _PLACES)] * stages,
            "x": [round(total - end, _PLACES)] * stages,
        }
        data.append(_trace("reduction, optimizer", GREEN) | after | {"hovertemplate": text})
    share = 100 * answer.time.bubble_s / total
    summary = f"A step takes {total:.4g} seconds; the slowest stage waits {share:.1f} % of it (bubble)."
    shapes, notes = _gap(drawn)
    ticks = list(range(0, stages, max(1, stages // 16)))
    return Chart(
        name=name,
        title="The pipeline in one step",
        summary=summary
        + (f" {drawn.left_out:,} steps of the periodic middle are not drawn." if drawn.left_out else ""),
        data=data,
        layout=layout(
            height=130 + stages * row_height(stages, least=9, most=34, total=420),
            x={"title": {"text": "seconds"}, "range": [0, total], "ticksuffix": " s"},
            y={
                "range": [stages - 0.5, -0.5],
                "fixedrange": True,
                "tickvals": ticks,
                "ticktext": [f"stage {stage}" for stage in ticks],
            },
            barmode="overlay",
            bargap=0.12,
            dragmode="zoom",
            shapes=shapes,
            annotations=notes,
        ),
        head=("stage", "forward s", "backward s", "waiting s", "of the step"),
        rows=[_row(stage, answer.timeline, total, end) for stage in range(stages)],
    )


def _trace(label: str, colour: str) -> dict[str, Any]:
    return {"type": "bar", "orientation": "h", "name": label, "marker": {"color": colour, "line": {"width": 0}}}


def _bars(label: str, colour: str, events: Iterable[Event]) -> dict[str, Any]:
    shown = list(events)
    hover = f"stage %{{y}}, {label}<br>micro-batch %{{customdata[0]}}, chunk %{{customdata[1]}}"
    return {
        **_trace(label, colour),
        "y": [event.stage for event in shown],
        "base": [round(event.start, _PLACES) for event in shown],
        "x": [round(event.end - event.start, _PLACES) for event in shown],
        "customdata": [[event.micro_batch, event.chunk] for event in shown],
        "hovertemplate": hover + "<br>from %{base:.4f} s, %{x:.4f} s<extra></extra>",
    }


def _drawn(timeline: Sequence[Event]) -> _Drawn:
    """Return the steps to draw: of a long step its beginning and its end, where the pipeline fills and drains."""
    events = sorted(timeline, key=lambda event: event.start)
    if len(events) <= _MOST:
        return _Drawn(events=events)
    first, last = events[: _MOST // 2], events[-_MOST // 2 :]
    gap = (max(event.end for event in first), last[0].start)
    return _Drawn(events=[*first, *last], left_out=len(events) - _MOST, gap=gap)


def _gap(drawn: _Drawn) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the mark of the part that is not drawn."""
    if not drawn.left_out:
        return [], []
    start, end = drawn.gap
    box = {"type": "rect", "x0": start, "x1": end, "yref": "paper", "y0": 0, "y1": 1, "line": {"width": 0}}
    text = f"{drawn.left_out:,} steps,<br>the same again<br>and again"
    note = {"x": (start + end) / 2, "y": 0.5, "yref": "paper", "text": text, "showarrow": False}
    return [{**box, "fillcolor": "rgba(128,128,128,.18)"}], [note]


def _row(stage: int, timeline: Sequence[Event], total: float, end: float) -> tuple[str, ...]:
    own = [event for event in timeline if event.stage == stage]
    forward = sum(event.end - event.start for event in own if not event.backward)
    backward = sum(event.end - event.start for event in own if event.backward)
    waiting = end - forward - backward
    return (str(stage), f"{forward:.4f}", f"{backward:.4f}", f"{waiting:.4f}", f"{100 * waiting / total:.1f} %")
