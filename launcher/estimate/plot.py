"""The estimate as two pictures: memory per stage against the device's, and the pipeline on the time axis."""

from html import escape
from pathlib import Path

from launcher.estimate.drawing import GREY, INK, Box, Drawing, Line, Text, svg, write_png
from launcher.estimate.memory import GIB
from launcher.estimate.result import Estimate
from launcher.job import Job
from launcher.outputs.files import write_output
from launcher.outputs.kinds import PICTURE
from launcher.pipeline_schedule.simulation import Event

_LEFT, _RIGHT, _WIDTH = 90.0, 30.0, 1000.0
# Okabe and Ito's colour-blind safe palette.
_PARTS = (
    ("weights", "#0072b2"),
    ("gradients", "#56b4e9"),
    ("optimizer", "#009e73"),
    ("activations", "#e69f00"),
    ("workspace", "#999999"),
    ("reserve", "#d9d9d9"),
)
_FORWARD, _BACKWARD, _IDLE, _AFTER = "#56b4e9", "#e69f00", "#f1f1f1", "#009e73"
_MOST_BOXES = 2000
# Maximum steps drawn per stage; of a longer optimizer step, the first micro-batches are drawn.
_STEPS = 80


def write_plot(path: Path, job: Job, answer: Estimate) -> str | None:
    """Write both pictures to a file; return an error message on failure."""
    return write_drawing(path, draw(job, answer), f"{job.name or 'job'}: estimate")


def write_drawing(path: Path, drawing: Drawing, title: str) -> str | None:
    """Write a drawing as .html, .svg or .png; return an error message on failure."""
    if path.suffix == ".png":
        try:
            write_output(path, lambda temporary: write_png(temporary, drawing), PICTURE)
        except ImportError:
            return f"--plot {path}: PNG needs matplotlib (pip install matplotlib); .svg and .html need nothing"
        return None
    picture = svg(drawing)
    if path.suffix == ".html":
        picture = (
            f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title></head>'
            f'<body style="margin:24px">{picture}</body></html>'
        )
    write_output(path, picture, PICTURE)
    return None


def draw(job: Job, answer: Estimate) -> Drawing:
    """Return both pictures, one above the other."""
    stages = len(answer.stages)
    row = 26.0 if stages <= 16 else max(8.0, 416.0 / stages)
    memory_top, memory_height = 80.0, row * stages
    time_top = memory_top + memory_height + 110
    height = time_top + row * stages + 70 if answer.timeline else memory_top + memory_height + 60
    drawing = Drawing(width=_WIDTH, height=height)
    drawing.texts.append(Text(x=_LEFT, y=28, text=_title(job, answer), size=16, bold=True))
    _memory(drawing, answer, memory_top, row)
    if answer.timeline:
        _timeline(drawing, answer, time_top, row)
    return drawing


def _title(job: Job, answer: Estimate) -> str:
    verdict = {True: "fits", False: "does not fit", None: "memory of the device unknown"}[answer.fits]
    step = f", {answer.time.step_s:.4g} s/step" if answer.time else ""
    return f"{job.name or 'job'} on {job.cluster.world_size} × {job.hardware.name or 'device'}: {verdict}{step}"


def _legend(drawing: Drawing, entries: list[tuple[str, str]], y: float) -> None:
    x = _LEFT
    for name, colour in entries:
        drawing.boxes.append(Box(x=x, y=y - 10, width=12, height=12, colour=colour))
        drawing.texts.append(Text(x=x + 17, y=y, text=name, colour=GREY))
        x += 17 + 7.2 * len(name) + 18


def _memory(drawing: Drawing, answer: Estimate, top: float, row: float) -> None:
    capacity = (answer.capacity or 0) - (answer.outside if answer.capacity else 0)
    largest = max(*(stage.peak_reserved for stage in answer.stages), capacity) * 1.05
    scale = (_WIDTH - _LEFT - _RIGHT) / largest
    _legend(drawing, list(_PARTS), 58)
    for index, stage in enumerate(answer.stages):
        y, x = top + index * row, _LEFT
        for name, colour in _PARTS:
            size = stage.peak_reserved - stage.peak_allocated if name == "reserve" else getattr(stage, name)
            title = f"stage {stage.stage}, {name}: {size / GIB:.2f} GiB"
            drawing.boxes.append(Box(x=x, y=y + 2, width=size * scale, height=row - 4, colour=colour, title=title))
            x += size * scale
        drawing.texts.append(_label(stage.stage, y, row))
        if row >= 14:
            inside = x > _WIDTH - 120
            place, anchor = (x - 6, "end") if inside else (x + 6, "start")
            drawing.texts.append(
                Text(x=place, y=y + row / 2 + 4, text=f"{stage.peak_reserved / GIB:.1f} GiB", size=11, anchor=anchor)
            )
    bottom = top + row * len(answer.stages)
    if capacity:
        x = _LEFT + capacity * scale
        drawing.lines.append(Line(x1=x, y1=top - 6, x2=x, y2=bottom + 6, colour="#d55e00", dashed=True))
        text = f"{capacity / GIB:.1f} GiB usable of {(answer.capacity or 0) / GIB:g}"
        drawing.texts.append(Text(x=x, y=bottom + 22, text=text, size=11, anchor="end", colour="#d55e00"))
    drawing.texts.append(Text(x=_LEFT, y=bottom + 22, text="memory reserved per device", size=11, colour=GREY))


def _label(stage: int, y: float, row: float) -> Text:
    size = 12 if row >= 14 else 7
    return Text(x=_LEFT - 10, y=y + row / 2 + 4, text=f"stage {stage}", size=size, anchor="end", colour=INK)


def _timeline(drawing: Drawing, answer: Estimate, top: float, row: float) -> None:
    assert answer.time is not None
    stages, total = len(answer.stages), answer.time.step_s
    shown, until = _shown(answer)
    scale = (_WIDTH - _LEFT - _RIGHT) / until
    entries = [("forward", _FORWARD), ("backward", _BACKWARD), ("waiting", _IDLE)]
    if until >= total:
        entries.append(("reduction, gathering, optimizer", _AFTER))
    _legend(drawing, entries, top - 22)
    for stage in range(stages):
        y = top + stage * row
        drawing.boxes.append(Box(x=_LEFT, y=y + 2, width=until * scale, height=row - 4, colour=_IDLE))
        drawing.texts.append(_label(stage, y, row))
    for event in shown:
        title = f"{'backward' if event.backward else 'forward'} {event.micro_batch}, chunk {event.chunk}: "
        title += f"{1e3 * (event.end - event.start):.1f} ms"
        width = max(0.3, (min(event.end, until) - event.start) * scale)
        gap = min(0.6, width / 4)
        colour = _BACKWARD if event.backward else _FORWARD
        y = top + event.stage * row + 2
        drawing.boxes.append(
            Box(x=_LEFT + event.start * scale, y=y, width=width - gap, height=row - 4, colour=colour, title=title)
        )
    bottom = top + row * stages
    if until >= total:
        end = max(event.end for event in answer.timeline)
        for stage in range(stages):
            drawing.boxes.append(
                Box(
                    x=_LEFT + end * scale,
                    y=top + stage * row + 2,
                    width=max(0.5, (total - end) * scale),
                    height=row - 4,
                    colour=_AFTER,
                    title=f"after the pipeline: {total - end:.3g} s",
                )
            )
    note = f"0 to {until:.3g} s" + ("" if until >= total else f": the start of a step of {total:.3g} s")
    drawing.texts.append(Text(x=_LEFT, y=bottom + 20, text=note, size=11, colour=GREY))


def _shown(answer: Estimate) -> tuple[list[Event], float]:
    """Return the events to draw and their end time: all of a short step, the start of a long one."""
    assert answer.time is not None
    events = sorted(answer.timeline, key=lambda event: event.start)
    if len(events) <= _MOST_BOXES:
        return events, answer.time.step_s
    count = min(_STEPS * len(answer.stages), len(events) - 1)
    until = events[count].start
    return [event for event in events if event.start < until], until
