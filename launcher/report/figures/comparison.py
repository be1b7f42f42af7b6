"""Several jobs side by side: the parts of a step, and memory of the fullest stage."""

from collections.abc import Mapping, Sequence
from html import escape
from textwrap import wrap

from launcher.estimate.memory import GIB
from launcher.estimate.result import Estimate
from launcher.report.figures.chart import GREEN, GREY, ORANGE, PURPLE, SKY, Chart, categories, layout, stacked_bars
from launcher.report.figures.memory import KINDS, kinds_of, memory_bars

_TIMES = (
    ("forward_s", "forward", SKY),
    ("backward_s", "backward", ORANGE),
    ("exposed_comm_s", "exposed communication", PURPLE),
    ("bubble_s", "bubble", GREY),
    ("optimizer_s", "optimizer", GREEN),
)
# Characters of a label in a line.
_WIDEST = 24


def step_chart(answers: Mapping[str, Estimate], name: str = "steps") -> Chart | None:
    """Return the seconds of a step of each job by part; None: no job's time is known.

    Args:
        answers: estimates by the labels of their jobs.
    """
    times = {label: answer.time for label, answer in answers.items() if answer.time is not None}
    if not times:
        return None
    fastest = min(times, key=lambda label: times[label].step_s)
    return Chart(
        name=name,
        title="Seconds of one step",
        summary=f"The fastest is {fastest}: {times[fastest].step_s:.4g} seconds a step.",
        data=stacked_bars(
            times,
            "%{x:.4g} s",
            (
                (part, colour, [float(f"{getattr(time, field):.6g}") for time in times.values()])
                for field, part, colour in _TIMES
            ),
        ),
        layout=_layout(list(times), "seconds"),
        head=("job", *(part for _, part, _ in _TIMES), "step"),
        rows=[
            (label, *(f"{getattr(time, field):.4g}" for field, _, _ in _TIMES), f"{time.step_s:.4g}")
            for label, time in times.items()
        ],
    )


def peak_chart(answers: Mapping[str, Estimate], name: str = "peaks") -> Chart:
    """Return the memory of each job's fullest stage in GiB by kind; `answers` as in `step_chart`."""
    stages = {label: answer.fullest for label, answer in answers.items()}
    smallest = min(stages, key=lambda label: stages[label].peak_reserved)
    return Chart(
        name=name,
        title="Memory of the fullest device",
        summary=f"The smallest is {smallest}: {stages[smallest].peak_reserved / GIB:.1f} GiB reserved.",
        data=memory_bars(list(stages.items())),
        layout=_layout(list(stages), "GiB"),
        head=("job", *(kind for kind, _ in KINDS), "peak"),
        rows=[
            (label, *(f"{size / GIB:.2f}" for size in kinds_of(stage).values()), f"{stage.peak_reserved / GIB:.2f}")
            for label, stage in stages.items()
        ],
    )


def _layout(labels: Sequence[str], unit: str) -> dict[str, object]:
    """Return the layout; long labels take several lines, so that a narrow window has room for the bars."""
    lines = [wrap(label, _WIDEST) or [""] for label in labels]
    return layout(
        height=110 + sum(max(36, 18 * len(each)) for each in lines),
        x={"title": {"text": unit}, "rangemode": "tozero", "fixedrange": True},
        y={
            "autorange": "reversed",
            "fixedrange": True,
            "type": "category",  # a label such as 1 or 2026-11-28 is neither a number nor a date
            "tickvals": categories(labels),
            "ticktext": ["<br>".join(map(escape, each)) for each in lines],
        },
        barmode="stack",
        bargap=0.25,
    )
