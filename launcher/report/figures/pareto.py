"""Memory against step time of the layouts that a search found, with those that no other one beats in both."""

from collections.abc import Sequence
from typing import Any

from launcher.estimate.memory import GIB
from launcher.job import Job
from launcher.report.figures.chart import ORANGE, RED, SKY, Chart, layout
from launcher.search.found import Candidate, Found
from launcher.search.output import recompute_of, sizes_of

# Layouts that are drawn, the fastest first; beyond three times the best step none is.
_MOST, _SLOWEST = 1500, 3.0


def front(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates that no other one beats in both time and memory, the fastest first."""
    kept: list[Candidate] = []
    for candidate in sorted(candidates, key=lambda each: each.order):
        if not kept or candidate.peak < kept[-1].peak:
            kept.append(candidate)
    return kept


def pareto_chart(job: Job, found: Found) -> Chart | None:
    """Return memory in GiB against seconds of a step; None: nothing fits."""
    fitting = sorted(found.fitting, key=lambda each: each.order)
    if not fitting:
        return None
    best = front(fitting)
    shown = [each for each in fitting if each.step_s <= _SLOWEST * fitting[0].step_s][:_MOST]
    fastest, smallest = best[0], best[-1]
    ends = " to ".join(f"{each.step_s:.4g} s in {each.peak / GIB:.1f} GiB" for each in (fastest, smallest))
    summary = f"{len(fitting):,} layouts fit; {len(best)} are not beaten in both time and memory: from {ends}."
    others = _points(job, shown, "fits", {"color": SKY, "size": 6, "opacity": 0.6}, "markers")
    line = _points(job, best, "Pareto-optimal", {"color": RED, "size": 9}, "lines+markers")
    line["line"] = {"color": ORANGE, "width": 2, "shape": "hv"}
    capacity = found.capacity / GIB
    return Chart(
        name="pareto",
        title="Layouts that fit: memory and step time",
        summary=summary,
        data=[others, line],
        layout=layout(
            height=440,
            x={"title": {"text": "GiB on the fullest device"}, "range": [0, capacity]},
            y={"title": {"text": "seconds per step"}},
            hovermode="closest",
        ),
        head=("seconds per step", "GiB", *sizes_of(job, fastest), "micro-batch", "recompute"),
        rows=[_row(job, each) for each in best],
    )


def _points(job: Job, shown: Sequence[Candidate], label: str, marker: dict[str, Any], mode: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": mode,
        "name": label,
        "marker": marker,
        "x": [round(each.peak / GIB, 3) for each in shown],
        "y": [float(f"{each.step_s:.6g}") for each in shown],
        "text": [_text(job, each) for each in shown],
        "hovertemplate": "%{y:.4g} s, %{x:.1f} GiB<br>%{text}<extra></extra>",
    }


def _text(job: Job, candidate: Candidate) -> str:
    sizes = ", ".join(f"{name} {size}" for name, size in sizes_of(job, candidate).items())
    micro_batch = candidate.point["batch.micro_batch_size"]
    return f"{sizes}<br>micro-batch {micro_batch}, recomputation: {recompute_of(candidate)}"


def _row(job: Job, candidate: Candidate) -> tuple[str, ...]:
    return (
        f"{candidate.step_s:.4g}",
        f"{candidate.peak / GIB:.1f}",
        *map(str, sizes_of(job, candidate).values()),
        str(candidate.point["batch.micro_batch_size"]),
        recompute_of(candidate),
    )
