"""Which runtime a job gets: the backend's own stack, a rehearsal, or a refusal that says what to do."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from launcher.job import Job
from launcher.pipeline import Outcome
from launcher.plan import LaunchPlan
from launcher.translate.backend import Backend

# Above this many parameters a rehearsal is not started unasked: it would not fit, or not end, without an accelerator.
_TINY_PARAMETERS = 50_000_000
_DEVICE_FILES = {"cuda": ("/dev/nvidia0", "/dev/nvidiactl"), "npu": ("/dev/davinci_manager", "/dev/davinci0")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The runtime of a job, or why there is none."""

    runtime: str | None
    reason: str


def planned(outcome: Outcome) -> LaunchPlan:
    """Return what would run: the rehearsal if the job asks for one, else the backend's own stack."""
    if asks_for_rehearsal(outcome.job):
        from launcher.rehearse.plan import rehearsal_plan

        return rehearsal_plan(outcome)
    return outcome.plan()


def asks_for_rehearsal(job: Job) -> bool:
    """Tell whether the job is to be rehearsed: by its runtime, or by an option that only a rehearsal has."""
    return job.runtime == "rehearsal" or (job.runtime is None and (job.rehearse.shrink or job.rehearse.fake_world))


def choose(job: Job, backend: Backend, environ: Mapping[str, str] = os.environ) -> Choice:
    """Choose the runtime of a job on this machine.

    As given; else native if the backend is installed and a device is there; else a rehearsal if tiny; else none.
    """
    if job.runtime is not None:
        return Choice(runtime=job.runtime, reason="as given")
    if asks_for_rehearsal(job):
        return Choice(runtime="rehearsal", reason="asked for by rehearse.shrink or rehearse.fake_world")
    missing = missing_requirements(backend, environ)
    device = has_device(backend.devices)
    if not missing and device:
        return Choice(runtime="native", reason=f"{backend.title} is installed and a device is there")
    if is_tiny(job):
        return Choice(runtime="rehearsal", reason="the model is tiny, and the native stack cannot run here")
    lacks = [f"{name} is missing" for name in missing] + (
        [] if device else [f"no {' or '.join(backend.devices)} device"]
    )
    return Choice(runtime=None, reason="; ".join(lacks))


def missing_requirements(backend: Backend, environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return what a native run of the backend needs and does not find here, in words."""
    missing = []
    for requirement in backend.requires:
        kind, _, name = requirement.partition(":")
        if kind == "env" and not Path(environ.get(name, "\0")).is_dir():
            missing.append(f"environment variable {name} (a checkout)")
        elif kind == "module" and find_spec(name) is None:
            missing.append(f"Python package {name}")
    return missing


def has_device(kinds: tuple[str, ...]) -> bool:
    """Tell whether a device of one of these kinds is attached, judged by the driver's device files."""
    return any(Path(file).exists() for kind in kinds for file in _DEVICE_FILES.get(kind, ()))


def is_tiny(job: Job) -> bool:
    """Tell whether the model is small enough to be trained on a processor."""
    model = job.model
    if model.hidden_size is None or model.num_hidden_layers is None:
        return False
    width = model.intermediate_size or 0
    if model.num_experts is not None:
        width = max(width, model.num_experts * (model.moe_intermediate_size or 0))
    per_layer = 4 * model.hidden_size**2 + 3 * model.hidden_size * width
    return 2 * (model.vocab_size or 0) * model.hidden_size + model.num_hidden_layers * per_layer < _TINY_PARAMETERS
