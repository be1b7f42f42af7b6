"""Trains what differs again, in one process that records every layer, and names the first tensor that differs."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from launcher.parity.locate import Located, located, not_located, with_settings
from launcher.parity.request import Request, Result, Show
from launcher.parity.sides import Side, in_one_process, on_shared
from launcher.parity.tolerance import rounding
from launcher.parity.trainings import TRANSFORMERS, name_of, quiet, silent, train_reference, train_side
from launcher.rehearse.cpu.tracer import VARIABLE as TRACE


def locate(request: Request, result: Result, model: Path, show: Show) -> Mapping[str, Located]:
    """Train the reference and each side that differs from it again, in one process, and compare their first passes.

    Args:
        model: the shared one.
    """
    found = dict(_by_the_optimizer(result))
    differing = {each.label for each in result.compared if each.first is not None and not each.problem}
    retrained = [side for side in result.sides if side.label in differing]
    if not retrained:
        return found
    show("trains again in one process, recording every layer")
    folder = result.folder / "located"
    if request.reference is None:
        reference, problem = _traced(result.sides[0], model, result.folder, folder)
    else:
        folder.mkdir()
        file = folder / f"{TRANSFORMERS}.pt"
        job, environ = result.sides[0].job, {TRACE: str(file)}
        reference, problem = (
            file,
            train_reference(request, job, model, result.folder, silent, "traced", environ).problem,
        )
    allowed = rounding(str(result.sides[0].job.precision.dtype), request.tolerance).tensor
    for side in retrained:
        recording, failed = _traced(side, model, result.folder, folder)
        absent = _unrecorded(result.trained[0].label, reference, problem) or _unrecorded(side.label, recording, failed)
        if absent:
            found[side.label] = not_located(absent)
            continue
        difference, stage = located(side.job, reference, recording, allowed=allowed)
        compared_sides = [side] if request.reference is not None else [result.sides[0], side]
        found[side.label] = with_settings(difference, stage, compared_sides, request.reference)
    return found


def _by_the_optimizer(result: Result) -> Iterator[tuple[str, Located]]:
    """Yield the sides that differ in their parameters only: no pass shows it."""
    for each in result.compared:
        parameters = result.parameters.get(each.label)
        if each.agrees and parameters is not None and not parameters.agrees:
            why = "loss and gradient norm agree: the optimizer's step differs, or how the weights are saved, no layer"
            yield each.label, not_located(why)


def _unrecorded(label: str, recording: Path, problem: str) -> str:
    """Return why there is no recording of a training; "" where there is one."""
    if recording.exists():
        return ""
    if problem:
        return f"{label} failed in one process: {problem}"
    return f"{label} records no layers: it compiles its model to a graph, in which no hook of a layer is called"


def _traced(side: Side, model: Path, whole: Path, folder: Path) -> tuple[Path, str]:
    """Train a side in one process for as many iterations as its warm-up needs, recording the first.

    Returns:
        The recording, which is there if the side records layers, and why the training failed, or "".
    """
    own = folder / name_of(side)
    job = on_shared(replace(side, job=in_one_process(side.job)), model=model, data=whole / "data", folder=own)
    recording = folder / f"{name_of(side)}.pt"
    folder.mkdir(exist_ok=True)
    trained = train_side(side, job, own, 0, quiet, silent, {TRACE: str(recording)})
    return recording, trained.problem
