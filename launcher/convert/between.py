"""Compares two checkpoints of one model, whatever their formats and layouts."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launcher.convert.containers.dtypes import nbytes
from launcher.convert.containers.transfer import OpenFiles
from launcher.convert.errors import ConvertError
from launcher.convert.formats import format_in
from launcher.convert.formats.format import Layout
from launcher.convert.logical import logical_model
from launcher.convert.plan import make_plan
from launcher.convert.progress import Progress, duration, size
from launcher.convert.verify import compare
from launcher.job.model import Model

_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What a comparison of two checkpoints found."""

    left: str
    right: str
    problems: tuple[str, ...]
    compared: int
    seconds: float

    @property
    def same(self) -> bool:
        """Whether both hold the same model, to the last byte."""
        return not self.problems

    def as_tree(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "ok": self.same,
            "left": self.left,
            "right": self.right,
            "problems": list(self.problems),
            "compared_bytes": self.compared,
            "seconds": round(self.seconds, 3),
        }

    def lines(self) -> list[str]:
        """Return the result for people."""
        done = f"compared {size(self.compared)} in {duration(self.seconds)}"
        if self.same:
            return [f"{self.left} and {self.right} hold the same weights, every byte ({done})"]
        more = [f"  … and {len(self.problems) - _SHOWN} more"] if len(self.problems) > _SHOWN else []
        shown = [f"  {problem}" for problem in self.problems[:_SHOWN]]
        return [f"{self.left} and {self.right} are not the same ({done}):", *shown, *more]


def between(left: Path, right: Path, model: Model, *, workers: int | None = None, quiet: bool = False) -> Comparison:
    """Compare two checkpoints.

    Raises:
        ConvertError: one of them does not fit the model's config.json.
        ContainerError: a file is damaged.
    """
    found = []
    for path in (left, right):
        form = format_in(path)
        found.append(form.read(path, logical_model(model), Layout())[1])
    tensors = logical_model(model).tensors
    ours, theirs = found
    problems: list[str] = []
    for source, target in ((ours, theirs), (theirs, ours)):
        try:
            held = {box.logical for content in (*source.contents, *target.contents) for box in content.boxes}
            make_plan(source.contents, target.contents, {name: tensors[name] for name in tensors if name in held})
        except ConvertError as error:
            problems.extend(error.problems)
    progress = Progress("comparing", sum(nbytes(content.slot) for content in ours.contents), quiet=quiet)
    threads = workers or min(8, os.cpu_count() or 1)
    with OpenFiles() as files:
        differences = compare(ours.contents, theirs.contents, files=files, workers=threads, advance=progress.advance)
    problems.extend(str(difference) for difference in differences)
    seconds = progress.finish()
    return Comparison(
        left=str(left),
        right=str(right),
        problems=tuple(dict.fromkeys(problems)),
        compared=progress.done,
        seconds=seconds,
    )
