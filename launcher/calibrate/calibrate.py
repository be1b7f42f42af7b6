"""Measures short trainings of a job on this machine's devices, and fits a hardware file to them."""

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from backends import CORE_BACKEND
from launcher.calibrate.fit import CannotFit, Fitted, Observation, fit, outside_gib
from launcher.calibrate.kernels import processor
from launcher.calibrate.layouts import Layout, fewer, layouts, mixed, warm_up
from launcher.calibrate.measure import CannotMeasure, Clock, Measured, peaks
from launcher.calibrate.state import OtherCalibration, State, mark_of
from launcher.calibrate.trainings import SPREAD, OutOfTime, Trainings, training
from launcher.compose import compose
from launcher.estimate.as_run import as_run
from launcher.estimate.estimate import estimate, quick
from launcher.estimate.memory import GIB
from launcher.job import Job
from launcher.job.finding import Finding
from launcher.job.hardware import Hardware
from launcher.pipeline import judge
from launcher.records import dataclass
from launcher.rehearse.core.options import Device
from launcher.rehearse.implementation import described
from launcher.rehearse.refusal import RehearsalRefused
from launcher.runtime import VISIBLE, devices_seen, has_device, planned

# Processes of a layout: collectives and transfers are measured between two.
_TOGETHER = 2
_OWN_GROUPS = ("backend", "runtime", "rehearse", "output_dir", "cluster")


class CannotCalibrate(Exception):
    """The calibration was refused or failed; has what would work, and the log of a training that failed.

    Attributes:
        findings: why the trainer refuses the job, where it does.
    """

    def __init__(self, message: str, *works: str, log: str = "", findings: Sequence[Finding] = ()) -> None:
        super().__init__(message)
        self.message, self.works, self.log, self.findings = message, works, log, tuple(findings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is calibrated.

    Attributes:
        overrides: the job whose sizes are measured.
        steps: iterations of each training that are measured.
        layouts: how many are measured at most; None: all.
        rounds: trainings of a layout whose steps differ, at most.
        clock: what a step's time is; `processor`: of the process, for machines that do other work.
        minutes: in which all trainings are to end, the fit is then to what was measured; None: no limit.
        state: file in which what is measured is kept, and from which it goes on; None: none.
    """

    overrides: Sequence[str]
    config_dirs: Sequence[str] = ()
    steps: int = 8
    layouts: int | None = None
    rounds: int = 3
    clock: Clock = "wall"
    minutes: float | None = None
    state: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """A finished calibration.

    Attributes:
        threads: of each process; None: on an accelerator.
        words: overrides that every training had: an estimate of the same layers needs them too.
        loads: load average of the machine before the first training and after the last one.
        noisy: layouts whose steps spread further than `SPREAD` in every round.
    """

    fitted: Fitted
    request: Request
    device: str
    threads: int | None
    words: tuple[str, ...]
    loads: tuple[float, float]
    noisy: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())


def calibrate(
    request: Request, *, show: Callable[[str], None], advanced: Callable[[str, int, int], None]
) -> Calibration:
    """Measure the layouts of a job on this machine, and fit.

    Args:
        show: called with one line before each training.
        advanced: called with a training's name, the iterations done, and all of them.

    Raises:
        CannotCalibrate: nothing can be measured here, or a measurement failed.
        CannotEstimate: the estimate does not describe the job, or the hardware lacks its number format.
        ComposeError: the overrides do not describe a job.
        KeyboardInterrupt: after the training has ended and its files are gone.
    """
    words, notes = _own(request.overrides)
    job = compose([*words, f"backend={CORE_BACKEND[0]}"], list(request.config_dirs))
    asked = compose(list(request.overrides), list(request.config_dirs))
    _refuse(asked)
    kind, devices = _devices(asked)
    if kind == "cuda" and request.clock == "processor":
        raise CannotCalibrate(
            "--clock processor: on an accelerator it is the time in which kernels are started, not theirs",
            "--clock wall",
        )
    fixed = (f"backend={CORE_BACKEND[0]}", *described(kind, transformer_engine=_has_transformer_engine()))
    threads = max(1, devices // _TOGETHER) if kind == "cpu" else None
    if request.clock == "processor":
        threads, devices = 1, devices if devices <= _TOGETHER else 1
    chosen = layouts(
        job,
        kind=kind,
        devices=min(devices, _TOGETHER),
        iterations=request.steps + warm_up(),
        stages=request.clock == "wall",  # a stage that waits for another one takes no processor time
    )
    if request.layouts is not None:
        chosen = fewer(chosen, request.layouts)
    _refuse_untrainable([*words, *fixed], chosen, kind, request)
    environ = {} if threads is None else {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    before = os.getloadavg()[0]
    folder = Path(tempfile.mkdtemp(prefix="launch-calibrate-"))
    found = _Found()
    try:
        device = f"{kind} {threads} {processor() if kind == 'cpu' else ''}"
        state = State(request.state, mark_of([*words, *fixed], device, request.steps, request.clock))
        runs = Trainings(
            [*words, *fixed],
            folder,
            config_dirs=request.config_dirs,
            steps=request.steps,
            rounds=request.rounds,
            clock=request.clock,
            seconds=None if request.minutes is None else 60 * request.minutes,
            environ=environ,
            kind=kind,
            state=state,
            show=show,
            advanced=advanced,
        )
        hardware = _start(job, kind, threads, environ, state, show)
        jobs = {each.name: _estimated([*words, *fixed, *each.words], request, hardware) for each in chosen}
        _measure(found, runs, chosen, jobs, hardware)
        observations = [
            Observation(
                name=each.name,
                job=jobs[each.name],
                step_s=run.step_s,
                peak_bytes=run.tensor_bytes,
                held_out=each.held_out,
                spread=run.spread,
                steps=run.steps,
            )
            for each in chosen
            if (run := found.runs.get(each.name)) is not None
        ]
        fitted = fit(observations, hardware)
        if found.process is not None:
            fitted = _with_outside(fitted, *found.process, observations[0].job.estimate.mem_factor)
    except OtherCalibration as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise CannotCalibrate(str(error)) from None
    except (CannotMeasure, CannotFit) as error:
        log = getattr(error, "log", "")
        if not log:
            shutil.rmtree(folder, ignore_errors=True)
        over = f"--minutes {request.minutes:g} were over: " if found.late else ""
        raise CannotCalibrate(over + str(error), *_goes_on(request), log=log) from None
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    if not found.failed:  # their logs are in it
        shutil.rmtree(folder, ignore_errors=True)
    return Calibration(
        fitted=fitted,
        request=request,
        device=hardware.name or kind,
        threads=threads,
        words=fixed[1:],
        loads=(before, os.getloadavg()[0]),
        noisy=tuple(each.name for each in observations if each.spread > SPREAD),
        notes=(*notes, *found.notes(request)),
    )


def _goes_on(request: Request) -> tuple[str, ...]:
    """Return what works after a calibration that measured too little."""
    again = () if request.state is None else (f"--resume {request.state}, which has what was measured",)
    return again if request.minutes is None else (f"--minutes {2 * request.minutes:g}", *again)


@dataclass(slots=True, kw_only=True)
class _Found:
    """What was measured of the layouts, and which were not.

    Attributes:
        runs: by the layout's name.
        process: a training that counted its tensors, and one that did not, of one layout.
        failed: reasons, by the layout's name.
        too_large: names of layouts that do not fit into the device's memory by the estimate.
        late: names of layouts for which no time was left.
    """

    runs: dict[str, Measured] = field(default_factory=dict)
    process: tuple[Measured, Measured] | None = None
    failed: dict[str, str] = field(default_factory=dict)
    too_large: list[str] = field(default_factory=list)
    late: list[str] = field(default_factory=list)

    def notes(self, request: Request) -> tuple[str, ...]:
        """Return lines on the layouts that were not measured."""
        notes = [f"failed, and left out: {name}: {why}" for name, why in self.failed.items()]
        if self.too_large:
            notes.append(f"not trained, too large for the device by the estimate: {_first(self.too_large)}")
        if self.late:
            notes.append(f"not measured in {request.minutes:g} minutes: {_first(self.late)}")
        return tuple(notes)


def _first(names: Sequence[str], most: int = 3) -> str:
    """Return names in a line, of many the first ones and the number of the others."""
    more = f"; and {len(names) - most} more" if len(names) > most else ""
    return "; ".join(names[:most]) + more


def _measure(
    found: _Found, runs: Trainings, chosen: Sequence[Layout], jobs: Mapping[str, Job], hardware: Hardware
) -> None:
    """Train the layouts one after the other, while there is time.

    One that fails is left out, unless it is the first: what is wrong then is not the layout.

    Raises:
        CannotMeasure: the first training failed.
    """
    if hardware.device != "cpu":
        found.too_large = [each.name for each in chosen if quick(jobs[each.name]).fits is False]
    left = mixed([each for each in chosen if each.name not in found.too_large])
    for number, each in enumerate(left, start=1):
        try:
            found.runs[each.name] = run = runs.measure(f"{number} of {len(left)}", each)
            if runs.kind == "cpu" and run.tensor_bytes is not None and found.process is None:
                found.process = (run, runs.process(each))
        except OutOfTime:
            found.late = [one.name for one in left if one.name not in found.runs and one.name not in found.failed]
            break
        except CannotMeasure as error:
            if not found.runs:
                raise
            found.failed[each.name] = str(error).removeprefix(f"{each.name}: ") + (
                f" (log: {error.log})" if error.log else ""
            )


def _refuse_untrainable(words: Sequence[str], chosen: Sequence[Layout], kind: Device, request: Request) -> None:
    """Refuse before anything is measured what a training would refuse at its start."""
    for layout in chosen:
        outcome = judge(compose(training(words, layout, kind), list(request.config_dirs)), fixes=False)
        errors = [each for each in outcome.findings if each.severity == "error"]
        try:
            if not errors:
                planned(outcome)
        except RehearsalRefused as refused:
            errors = list(refused.findings)
        if errors:
            raise CannotCalibrate(f"{layout.name}: the trainer refuses this job", findings=errors)


def _own(overrides: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """Return the overrides without those that the calibration sets itself, and a note on them."""
    kept: list[str] = []
    dropped: list[str] = []
    for word in overrides:
        name = re.split(r"[.=]", word.lstrip("+~"), maxsplit=1)[0]
        if not word.startswith("rehearse.device="):  # `_devices` reads it
            (dropped if name in _OWN_GROUPS else kept).append(word)
    notes = (f"not used, the calibration sets it: {', '.join(dropped)}",) if dropped else ()
    return kept, notes


def _refuse(job: Job) -> None:
    if job.runtime == "native" or job.rehearse.entry == "native":
        raise CannotCalibrate(
            "runtime=native, rehearse.entry=native: a calibration measures Launch's trainer on megatron-core, which "
            "reports each step's time and memory",
            "without runtime and rehearse.entry",
        )
    if job.task.type != "pretrain" or job.lora.rank:
        raise CannotCalibrate("a calibration measures pre-training: every token counts", "task=pretrain")


def _devices(job: Job) -> tuple[Device, int]:
    """Return the kind of this machine's devices, and how many there are.

    Raises:
        CannotCalibrate: the hardware that the job names is another kind.
    """
    asked, named = job.rehearse.device, job.hardware
    hidden = VISIBLE["cuda"] in os.environ and not devices_seen("cuda")
    kind: Device = "cuda" if asked != "cpu" and has_device(("cuda",)) and not hidden else "cpu"
    if asked == "cuda" and kind == "cpu":
        why = f"{VISIBLE['cuda']}={os.environ[VISIBLE['cuda']]} hides them" if hidden else "this machine has none"
        raise CannotCalibrate(f"rehearse.device=cuda: no CUDA device can be used here, {why}", "rehearse.device=cpu")
    if named.name is not None and named.device != kind:
        here = "no accelerator that the trainer can use" if kind == "cpu" else "CUDA devices"
        raise CannotCalibrate(
            f"hardware: {named.name} is a device of kind {named.device}, and this machine has {here}",
            "hardware=cpu" if kind == "cpu" else "the hardware file of this device, or none",
        )
    if kind == "cuda":
        return kind, devices_seen("cuda") or 1
    return kind, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _has_transformer_engine() -> bool:
    from importlib.util import find_spec

    return find_spec("transformer_engine") is not None


def _start(
    job: Job,
    kind: Device,
    threads: int | None,
    environ: Mapping[str, str],
    state: State,
    show: Callable[[str], None],
) -> Hardware:
    """Return the job's hardware file with the peaks that it lacks, measured here."""
    named, dtype = job.hardware, job.precision.dtype
    name = "fp32_tflops" if dtype == "fp32" else "bf16_tflops"
    given = kind == "cuda" and getattr(named, name) and named.memory_bandwidth_gbs
    values: dict[str, object] = {"device": kind}
    if not given:
        found: Mapping[str, Any] | None = state.peaks
        if found is None:
            show("peaks: matrix products and copies of memory")
            found = peaks(kind, str(dtype), environ)
            state.keep_peaks(found)
        values |= {name: _short(found["tflops"]), "memory_bandwidth_gbs": _short(found["gbs"])}
        values["source"] = "peaks: the fastest matrix product and copy of torch " + str(found["torch"])
        if named.name in (None, "CPU"):
            of = "" if threads is None else f", {threads} core{'s' if threads > 1 else ''} a process"
            values["name"] = f"{found['name']}{of}"
        if kind == "cuda" and not named.memory_gib:
            values["memory_gib"] = _short(found["memory_bytes"] / GIB)
    if kind == "cpu":
        values["reduce_scatter_copies"] = True  # ProcessGroupGloo clones what it reduces and scatters
    return replace(named, **values)  # type: ignore[arg-type]


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def _estimated(words: Sequence[str], request: Request, hardware: Hardware) -> Job:
    """Return the job of a layout as the estimate reads it; raises CannotEstimate where it does not describe it."""
    job = replace(compose(list(words), list(request.config_dirs)), hardware=hardware)
    estimate(job, changes=False)
    return as_run(job)[0]


def _with_outside(fitted: Fitted, counted: Measured, plain: Measured, mem_factor: float) -> Fitted:
    """Return the fit with what a process holds beside its tensors, from one training that counts nothing."""
    outside = _short(outside_gib(plain.process_bytes, counted.tensor_bytes or 0, mem_factor))
    return replace(fitted, hardware=replace(fitted.hardware, reserved_gib=outside))
