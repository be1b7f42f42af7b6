"""Plot of the even and the balanced split: memory of every stage and the timeline of the pipeline."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from launcher.balance.solve_job import Answer
from launcher.estimate.drawing import Drawing
from launcher.estimate.estimate import estimate
from launcher.estimate.plot import draw, write_drawing
from launcher.job import Job


def write_plot(path: Path, answer: Answer) -> str | None:
    """Write the picture (.html, .svg or .png); return an error message on failure."""
    before, after = _drawn(answer.posed.start, "before (even)"), _drawn(answer.job, "after (balanced)")
    return write_drawing(path, stacked(before, after), f"{answer.job.name or 'job'}: balance")


def _drawn(job: Job, what: str) -> Drawing:
    drawing = draw(job, estimate(job, timeline=True, changes=False))
    title = drawing.texts[0]
    drawing.texts[0] = replace(title, text=f"{what}: {title.text}")
    return drawing


def stacked(above: Drawing, below: Drawing) -> Drawing:
    """Return two drawings as one, the second under the first."""
    down = above.height
    return Drawing(
        width=max(above.width, below.width),
        height=above.height + below.height,
        boxes=[*above.boxes, *(replace(box, y=box.y + down) for box in below.boxes)],
        lines=[*above.lines, *(replace(line, y1=line.y1 + down, y2=line.y2 + down) for line in below.lines)],
        texts=[*above.texts, *(replace(text, y=text.y + down) for text in below.texts)],
    )
