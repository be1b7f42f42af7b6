"""Selects the runtime of a job: the backend's native stack, a rehearsal, or none, with the reason."""

import dataclasses
import os
import re
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from launcher.job import Job, Origin, with_values
from launcher.mapping.backend import Backend
from launcher.pipeline import Outcome, judge
from launcher.plan import LaunchPlan, Watch
from launcher.plan.executor import get_executor, start_of
from launcher.plan.start import RESUME
from launcher.plan.tracker_config import with_job_as_config
from launcher.records import dataclass
from launcher.rules.passthrough import with_passthrough

# Above this many parameters a rehearsal runs only on request: without an accelerator it would not fit, or not end.
_TINY_PARAMETERS = 50_000_000
# Overrides of a restart: settings for loading pretrained weights do not apply to the job's own checkpoints.
_FROM_OWN_CHECKPOINT = {
    "checkpoint.load": f"${{{RESUME}}}",
    "checkpoint.finetune": None,
    "checkpoint.no_load_optim": None,
    "checkpoint.no_load_rng": None,
}
_DEVICE_FILES = {"cuda": ("/dev/nvidia0", "/dev/nvidiactl"), "npu": ("/dev/davinci_manager", "/dev/davinci0")}
_NUMBERED = {"cuda": re.compile(r"nvidia\d+"), "npu": re.compile(r"davinci\d+")}
VISIBLE: Mapping[str, str] = {"cuda": "CUDA_VISIBLE_DEVICES", "npu": "ASCEND_RT_VISIBLE_DEVICES"}
"""The variable that limits a process to some of a machine's devices, by their kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The runtime of a job, or why there is none."""

    runtime: str | None
    reason: str


def planned(outcome: Outcome, *, resumes: bool = False) -> LaunchPlan:
    """Return the launch plan: a rehearsal if the job requests one, else the backend's native stack.

    The plan includes the executor, what to monitor, and, where all ranks may be started again, how to resume from the
    job's own checkpoints.

    Args:
        resumes: also how to resume it by `launch resume`.
    """
    plan, job, watch = _commands(outcome)
    start = start_of(on_devices(job, outcome.backend), native=not asks_for_rehearsal(job))
    if not watch.saves_on_signal:
        start = dataclasses.replace(start, save_seconds=None)
    plan = dataclasses.replace(plan, start=start, watch=watch)
    restarts = _may_restart(job)
    if watch.checkpoints is None or not watch.trackers or not (restarts or resumes):
        return plan
    again = {**_FROM_OWN_CHECKPOINT, "checkpoint.save": watch.checkpoints}
    job = with_passthrough(outcome.job)
    resumed = judge(with_values(job, again, Origin(kind="override", where="restart")), fixes=False)
    if not resumed.ok and not restarts:
        return plan
    if not resumed.ok:
        why = next(finding.message for finding in resumed.findings if finding.severity == "error")
        return dataclasses.replace(plan, notes=(*plan.notes, f"a restart begins anew, not from a checkpoint: {why}"))
    return dataclasses.replace(plan, resume=_commands(resumed)[0])


def on_devices(job: Job, backend: Backend) -> Job:
    """Return the job on its backend's kind of devices, if it names no hardware and the default kind is none of them."""
    kind = job.hardware.device
    if job.hardware.name is not None or kind == "cpu" or not backend.devices or kind in backend.devices:
        return job
    return dataclasses.replace(job, hardware=dataclasses.replace(job.hardware, device=backend.devices[0]))


def _commands(outcome: Outcome) -> tuple[LaunchPlan, Job, Watch]:
    """Return the commands, the job that they actually run, and what to monitor."""
    if not asks_for_rehearsal(outcome.job):
        watch = dataclasses.replace(outcome.backend.watch, checkpoints=outcome.job.checkpoint.save)
        plan = outcome.plan()
        if "logging.wandb_project" not in outcome.backend.table(outcome.version).unsupported:
            plan = with_job_as_config(plan, outcome.job)
        return plan, outcome.job, watch
    from launcher.rehearse.plan import rehearsal

    return rehearsal(outcome)


def _may_restart(job: Job) -> bool:
    return job.fault_tolerance.max_restarts > 0 or get_executor(job.cluster.executor).restarts(job)


def asks_for_rehearsal(job: Job) -> bool:
    """Return whether the job requests a rehearsal, by its runtime or by an option that only a rehearsal has."""
    asks = job.rehearse.shrink or job.rehearse.fake_world or job.rehearse.device is not None
    return job.runtime == "rehearsal" or (job.runtime is None and asks)


def choose(job: Job, backend: Backend, environ: Mapping[str, str] = os.environ) -> Choice:
    """Choose the runtime of a job on this machine.

    As given; else native if the backend is installed and a device is present; else a rehearsal if tiny; else none.
    """
    if job.runtime is not None:
        return Choice(runtime=job.runtime, reason="as given")
    if asks_for_rehearsal(job):
        asked = "rehearse.shrink, rehearse.fake_world or rehearse.device"
        return Choice(runtime="rehearsal", reason=f"asked for by {asked}")
    remote = not get_executor(job.cluster.executor).here
    if remote and job.cluster.container is not None:
        return Choice(runtime="native", reason="cluster.container has the backend")
    requirements = requirements_of(backend, backend.version(job.backend.version))
    if remote and _checked_on_hosts(job):
        requirements = tuple(each for each in requirements if not each.startswith("module:"))
    missing = missing_requirements(backend, environ, requirements)
    device = remote or has_device(backend.devices)
    if not missing and device:
        what = f"cluster.executor={job.cluster.executor} starts it on other machines" if remote else "a device is there"
        return Choice(runtime="native", reason=f"{backend.title} is installed and {what}")
    if is_tiny(job):
        return Choice(runtime="rehearsal", reason="the model is tiny, and the native stack cannot run here")
    lacks = [f"{name} is missing" for name in missing] + (
        [] if device else [f"no {' or '.join(backend.devices)} device"]
    )
    return Choice(runtime=None, reason="; ".join(lacks))


def _checked_on_hosts(job: Job) -> bool:
    """Return whether the Python that runs the job on other machines is not this one; `launch doctor` asks it."""
    python = job.cluster.python
    return (python is not None and python != sys.executable) or (
        get_executor(job.cluster.executor).asks_hosts and not is_tiny(job)
    )


def requirements_of(backend: Backend, version: str) -> tuple[str, ...]:
    """Return the requirements of one version of the backend, without those that only other versions need."""
    rows = {each.module or each.name for each in backend.support}
    held = {each.module or each.name for each in backend.support if each.holds(version, None)}
    return tuple(each for each in backend.requires if each.partition(":")[2] not in rows - held)


def missing_requirements(
    backend: Backend, environ: Mapping[str, str] = os.environ, requirements: Sequence[str] | None = None
) -> list[str]:
    """Return descriptions of the requirements of a native run that are missing on this machine.

    Args:
        requirements: subset of the backend's requirements; None: all.
    """
    missing = []
    for requirement in backend.requires if requirements is None else requirements:
        kind, _, name = requirement.partition(":")
        if kind == "env" and not Path(environ.get(name, "\0")).is_dir():
            missing.append(f"environment variable {name} (a checkout)")
        elif kind == "module" and find_spec(name) is None:
            missing.append(f"Python package {name}")
    return missing


def has_device(kinds: tuple[str, ...]) -> bool:
    """Return whether a device of one of these kinds is attached, judged by the driver's device files."""
    return any(Path(file).exists() for kind in kinds for file in _DEVICE_FILES.get(kind, ()))


def devices_seen(kind: str, environ: Mapping[str, str] = os.environ, folder: Path = Path("/dev")) -> int:
    """Return how many devices of a kind a process here may use, by the driver's device files."""
    pattern = _NUMBERED.get(kind)
    try:
        count = sum(1 for name in os.listdir(folder) if pattern is not None and pattern.fullmatch(name))
    except OSError:
        count = 0
    visible = environ.get(VISIBLE.get(kind, ""))
    if visible is None:
        return count
    words = [word.strip() for word in visible.split(",")]
    # The driver ignores what follows a number that is none of a device: -1 hides all.
    named = next((index for index, word in enumerate(words) if word.startswith("-")), len(words))
    return min(count, sum(1 for word in words[:named] if word))


def is_tiny(job: Job) -> bool:
    """Return whether the model is small enough to be trained on a CPU."""
    model = job.model
    if model.hidden_size is None or model.num_hidden_layers is None:
        return False
    width = model.intermediate_size or 0
    if model.num_experts is not None:
        width = max(width, model.num_experts * (model.moe_intermediate_size or 0))
    per_layer = 4 * model.hidden_size**2 + 3 * model.hidden_size * width
    return 2 * (model.vocab_size or 0) * model.hidden_size + model.num_hidden_layers * per_layer < _TINY_PARAMETERS
