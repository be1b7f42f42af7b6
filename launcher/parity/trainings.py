"""The trainings of a comparison: one of each side, and those of the reference."""

import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from launcher.job import Job
from launcher.parity import adapter
from launcher.parity.low_rank import LowRank
from launcher.parity.reordered import reordered_model
from launcher.parity.request import Request, Show
from launcher.parity.routing import recorded_in
from launcher.parity.runs import Trained, launch_words, train
from launcher.parity.samples import reference_options
from launcher.parity.sides import SHARED, Side, conversions_of, job_file, on_shared

TRANSFORMERS = "transformers"
REORDERED = "-reordered"
"""Ends the name of the folder of the reference's second training."""


def name_of(side: Side) -> str:
    """Return the name of a side's folder."""
    return side.label.replace(" (core)", "-core").replace("@", "-")


def quiet(_line: str) -> None:
    """Show nothing."""


def silent(_label: str, _count: int, _total: int) -> None:
    """Show nothing."""


def train_side(
    side: Side,
    job: Job,
    folder: Path,
    iterations: int,
    show: Show,
    advanced: Callable[[str, int, int], None],
    environ: Mapping[str, str] | None = None,
) -> Trained:
    """Convert the weights if the backend needs it, and train; what fails is the result's problem."""
    folder.mkdir(parents=True)
    file = folder / "job.yaml"
    file.write_text(job_file(side, job), encoding="utf-8")
    loads = [f"checkpoint.load={job.checkpoint.load}"] if job.checkpoint.load is not None else []
    command = ("launch", "run", f"+job={file}", *loads)
    for conversion in conversions_of(side, job):
        show(f"{side.label}: converts the {'adapter' if '--adapter' in conversion else 'weights'}")
        done = subprocess.run([*launch_words(), *conversion[1:]], capture_output=True, text=True, check=False)
        if done.returncode:
            (folder / "log.txt").write_text(done.stdout + done.stderr, encoding="utf-8")
            return Trained(
                label=side.label,
                iterations=(),
                problem=f"launch convert: {_first_line(done.stderr)}",
                command=shlex.join(conversion),
                log=str(folder / "log.txt"),
                seconds=0.0,
            )
    show(f"{side.label}: trains")
    return train(
        side.label,
        (*launch_words(), *command[1:]),
        folder,
        environ={**side.environ, **recorded_in(side.job, folder), **(environ or {})},
        advanced=lambda count: advanced(side.label, count, iterations),
    )


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if lines else "no message"


def train_reference(
    request: Request,
    job: Job,
    model: Path,
    folder: Path,
    advanced: Callable[[str, int, int], None],
    name: str = TRANSFORMERS,
    environ: Mapping[str, str] | None = None,
) -> Trained:
    """Train with transformers in a child process."""
    own = folder / name
    own.mkdir()
    options = reference_options(job, folder / "data", model=model, out=own / "trained")
    options = replace(options, lora=LowRank.of(job, model))
    (own / "options.json").write_text(options.to_json(), encoding="utf-8")
    argv = (sys.executable, "-m", options.module, str(own / "options.json"))
    return train(
        name,
        argv,
        own,
        environ={**recorded_in(job, own), **(environ or {})},
        advanced=lambda count: advanced(name, count, request.iterations),
    )


def train_again(
    request: Request, side: Side, model: Path, folder: Path, show: Show, advanced: Callable[[str, int, int], None]
) -> Trained | None:
    """Train the reference once more on the reordered model; None where its MLPs are not known."""
    other = folder / SHARED / "reordered"
    if not reordered_model(model, other):
        return None
    adapter.reorder(side.job, model, other)
    show("the reference again, with the sums of its MLPs in another order")
    if request.reference is not None:
        return train_reference(request, side.job, other, folder, advanced, f"{TRANSFORMERS}{REORDERED}")
    own = folder / f"{name_of(side)}{REORDERED}"
    job = on_shared(side, model=other, data=folder / "data", folder=own)
    return train_side(side, job, own, request.iterations, quiet, advanced)
