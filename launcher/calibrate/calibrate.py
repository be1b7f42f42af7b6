"""Measures short trainings of a job on this machine's devices, and fits a hardware file to them."""

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from backends import CORE_BACKEND
from launcher.calibrate.fit import CannotFit, Fitted, Observation, fit, outside_gib
from launcher.calibrate.layouts import Layout, fewer, layouts, warm_up
from launcher.calibrate.measure import CannotMeasure, Clock, Measured, measured, peaks
from launcher.compose import compose
from launcher.estimate.as_run import as_run
from launcher.estimate.estimate import estimate
from launcher.estimate.memory import GIB
from launcher.job import Job
from launcher.job.finding import Finding
from launcher.job.hardware import Hardware
from launcher.pipeline import judge
from launcher.rehearse.core.options import Device
from launcher.rehearse.implementation import described
from launcher.rehearse.refusal import RehearsalRefused
from launcher.runtime import has_device, planned

# Processes of a layout: collectives and transfers are measured between two.
_TOGETHER = 2
# A layout whose steps spread further than this, as interquartile range, is trained again.
SPREAD = 0.05
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
    """

    overrides: Sequence[str]
    config_dirs: Sequence[str] = ()
    steps: int = 8
    layouts: int | None = None
    rounds: int = 3
    clock: Clock = "wall"


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
    try:
        hardware = _start(job, kind, threads, environ, show)
        jobs = [_estimated([*words, *fixed, *each.words], request, hardware) for each in chosen]
        runs = _Runs(request, [*words, *fixed], folder, environ, kind, show, advanced)
        found = [runs.measure(number, each) for number, each in enumerate(chosen, start=1)]
        observations = [
            Observation(
                name=each.name,
                job=made,
                step_s=run.step_s,
                peak_bytes=run.tensor_bytes,
                held_out=each.held_out,
                spread=run.spread,
                steps=run.steps,
            )
            for each, made, run in zip(chosen, jobs, found, strict=True)
        ]
        fitted = fit(observations, hardware)
        if kind == "cpu":
            fitted = _with_outside(fitted, runs, chosen[0], found[0], jobs[0].estimate.mem_factor)
    except (CannotMeasure, CannotFit) as error:
        log = getattr(error, "log", "")
        if not log:
            shutil.rmtree(folder, ignore_errors=True)
        raise CannotCalibrate(str(error), log=log) from None
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)
    return Calibration(
        fitted=fitted,
        request=request,
        device=hardware.name or kind,
        threads=threads,
        words=fixed[1:],
        loads=(before, os.getloadavg()[0]),
        noisy=tuple(each.name for each in observations if each.spread > SPREAD),
        notes=notes,
    )


class _Runs:
    """The trainings of a calibration, one after the other."""

    def __init__(
        self,
        request: Request,
        words: Sequence[str],
        folder: Path,
        environ: Mapping[str, str],
        kind: Device,
        show: Callable[[str], None],
        advanced: Callable[[str, int, int], None],
    ) -> None:
        self.request, self.words, self.folder, self.environ = request, words, folder, environ
        self.kind, self.show, self.advanced = kind, show, advanced
        self.number = 0

    def measure(self, number: int, layout: Layout) -> Measured:
        """Train a layout until its steps are alike, at most as often as asked; return the steadiest training."""
        best: Measured | None = None
        for again in range(self.request.rounds):
            self.show(f"{number}: {layout.name}" + (f", again: steps differ by {best.spread:.0%}" if best else ""))
            run = self.once(layout, count=not again)
            if best is None:
                best = run
            elif run.spread < best.spread:
                best = replace(run, tensor_bytes=best.tensor_bytes)
            if best.spread <= SPREAD:
                break
        assert best is not None
        return best

    def once(self, layout: Layout, *, count: bool) -> Measured:
        """Train a layout once."""
        self.number += 1
        total = self.request.steps + warm_up()
        found = measured(
            layout,
            [
                *(f"--config-dir={folder}" for folder in self.request.config_dirs),
                *_training(self.words, layout, self.kind),
            ],
            self.folder / str(self.number),
            environ=self.environ,
            clock=self.request.clock,
            advanced=lambda done: self.advanced(layout.name, done, total),
            count=count,
        )
        if (found.device == "cpu") != (self.kind == "cpu"):
            raise CannotMeasure(f"{layout.name}: ran on {found.device} in place of {self.kind}")
        return found


def _training(words: Sequence[str], layout: Layout, kind: Device) -> list[str]:
    """Return the overrides of a layout's training."""
    return [*words, *layout.words, "runtime=rehearsal", f"rehearse.device={kind}"]


def _refuse_untrainable(words: Sequence[str], chosen: Sequence[Layout], kind: Device, request: Request) -> None:
    """Refuse before anything is measured what a training would refuse at its start."""
    for layout in chosen:
        outcome = judge(compose(_training(words, layout, kind), list(request.config_dirs)), fixes=False)
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
    kind: Device = "cuda" if asked != "cpu" and has_device(("cuda",)) else "cpu"
    if named.name is not None and named.device != kind:
        here = "no accelerator that the trainer can use" if kind == "cpu" else "CUDA devices"
        raise CannotCalibrate(
            f"hardware: {named.name} is a device of kind {named.device}, and this machine has {here}",
            "hardware=cpu" if kind == "cpu" else "the hardware file of this device, or none",
        )
    if kind == "cuda":
        return kind, len([each for each in os.listdir("/dev") if re.fullmatch(r"nvidia\d+", each)]) or 1
    return kind, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _has_transformer_engine() -> bool:
    from importlib.util import find_spec

    return find_spec("transformer_engine") is not None


def _start(
    job: Job, kind: Device, threads: int | None, environ: Mapping[str, str], show: Callable[[str], None]
) -> Hardware:
    """Return the job's hardware file with the peaks that it lacks, measured here."""
    named, dtype = job.hardware, job.precision.dtype
    name = "fp32_tflops" if dtype == "fp32" else "bf16_tflops"
    given = kind == "cuda" and getattr(named, name) and named.memory_bandwidth_gbs
    values: dict[str, object] = {"device": kind}
    if not given:
        show("peaks: matrix products and copies of memory")
        found = peaks(kind, str(dtype), environ)
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


def _with_outside(fitted: Fitted, runs: _Runs, layout: Layout, counted: Measured, mem_factor: float) -> Fitted:
    """Return the fit with what a process holds beside its tensors, from one training that counts nothing."""
    if counted.tensor_bytes is None:
        return fitted
    runs.show(f"process: {layout.name}")
    plain = runs.once(layout, count=False)
    outside = _short(outside_gib(plain.process_bytes, counted.tensor_bytes, mem_factor))
    return replace(fitted, hardware=replace(fitted.hardware, reserved_gib=outside))
