"""Fits the figures of a hardware file to measured steps, by calling the estimate itself with candidate figures."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from launcher.calibrate.least_squares import minimised
from launcher.estimate.estimate import quick
from launcher.estimate.memory import GIB
from launcher.job import Job
from launcher.job.hardware import Hardware
from launcher.records import dataclass

# Figures of kernels, with the values that the fit starts from where the hardware file has none; products' and
# attention's shares are those of a measured peak.
_KERNELS: Mapping[str, float] = {
    "matmul_efficiency": 0.65,
    "weight_gradient_efficiency": 0.62,
    "small_matmul_gflop": 0.0,  # as long as the shortest kernel
    "attention_efficiency": 0.3,
    "attention_backward_efficiency": 0.3,
    "attention_overhead_us": 30.0,
    "memory_efficiency": 0.5,
    "optimizer_efficiency": 0.4,
    "cross_entropy_efficiency": 0.4,
    "grouped_matmul_efficiency": 0.55,
    "grouped_matmul_tokens": 100.0,
    "permute_efficiency": 0.4,
    "kernel_latency_us": 15.0,
    "host_launch_us": 38.0,
}
_LINKS: Mapping[str, float] = {
    "intra_node_gbs": 4.0,
    "intra_node_latency_us": 50.0,
    "collective_latency_us": 50.0,
}
# Expected error of one measured step; and how far, as a factor's logarithm, a figure may be from its start.
_NOISE, _WIDE = 0.02, 2.0
# A figure that changes no fitted step by this share when it grows by half is not measured by them.
_LEAST_EFFECT = 1e-6


class CannotFit(ValueError):
    """The measurements do not determine a hardware file; the message says which of them, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One measured layout.

    Attributes:
        name: what it is.
        job: the job that was trained; its hardware is not read.
        step_s: seconds of a step.
        peak_bytes: peak of the tensors on the first rank; None: not measured.
        held_out: not used for the fit.
        spread: interquartile range of its steps, relative to their median.
        steps: how many were measured.
    """

    name: str
    job: Job
    step_s: float
    peak_bytes: int | None
    held_out: bool
    spread: float = 0.0
    steps: int = 1

    @property
    def ranks(self) -> int:
        """Processes that trained together."""
        return self.job.cluster.world_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One layout, measured and estimated with the fitted hardware; errors are relative to what was measured."""

    observation: Observation
    step_s: float
    peak_bytes: int

    @property
    def time_error(self) -> float:
        """Estimated / measured - 1."""
        return self.step_s / self.observation.step_s - 1

    @property
    def memory_error(self) -> float | None:
        """Estimated / measured - 1; None: memory was not measured."""
        measured = self.observation.peak_bytes
        return None if measured is None else self.peak_bytes / measured - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A hardware file's figures and how well they describe every layout.

    Attributes:
        fields: the fitted fields, by name.
        unmeasured: fields that no fitted layout depends on.
    """

    hardware: Hardware
    fields: tuple[str, ...]
    unmeasured: tuple[str, ...]
    rows: tuple[Row, ...]

    def errors(self, *, held_out: bool, memory: bool = False) -> list[float]:
        """Return the relative errors of time (or memory), of fitted or of held-out layouts."""
        rows = [row for row in self.rows if row.observation.held_out == held_out]
        values = [row.memory_error if memory else row.time_error for row in rows]
        return [value for value in values if value is not None]


def fit(observations: Sequence[Observation], start: Hardware) -> Fitted:
    """Return the hardware whose estimates are nearest to what was measured.

    Figures of kernels are fitted to layouts of one process, those of links to the others with the kernels' fixed.

    Args:
        start: peaks, memory bandwidth, and figures to start from.

    Raises:
        CannotFit: a measurement is not a positive number, or there are too few layouts.
    """
    _check(observations)
    alone = [each for each in observations if each.ranks == 1 and not each.held_out]
    together = [each for each in observations if each.ranks > 1 and not each.held_out]
    begun = _begun(start)
    hardware, kernels = _fitted(begun, alone, _kernels(begun))
    links: tuple[str, ...] = ()
    if together:
        hardware, links = _fitted(hardware, together, tuple(_LINKS))
    hardware = _with_memory(hardware, [each for each in observations if not each.held_out])
    fields = (*kernels, *links)
    unmeasured = [name for name in (*_kernels(begun), *_LINKS) if name not in fields]
    for name in unmeasured:
        # It stays as the hardware file had it, unless a kernel that it may limit made no difference by chance.
        before = _changed(hardware, {name: getattr(start, name)})
        if all(_seconds(each, before) == _seconds(each, hardware) for each in observations):
            hardware = before
    rows = tuple(_row(each, hardware) for each in observations)
    return Fitted(hardware=hardware, fields=fields, unmeasured=tuple(unmeasured), rows=rows)


def _check(observations: Sequence[Observation]) -> None:
    for each in observations:
        for what, value in (("step time", each.step_s), ("peak memory", each.peak_bytes)):
            if value is not None and not (math.isfinite(value) and value > 0):
                raise CannotFit(f"{what} of {each.name}: {value} is not a positive number")
    alone = [each for each in observations if each.ranks == 1 and not each.held_out]
    if len({each.name for each in alone}) < 2:
        raise CannotFit(f"{len(alone)} layout of one process to fit; at least two that differ are needed")


def _begun(start: Hardware) -> Hardware:
    """Return the hardware with a value for every figure that may be fitted."""
    given: dict[str, float] = {}
    for name, value in {**_KERNELS, **_LINKS}.items():
        if not getattr(start, name):
            given[name] = value
    if start.device == "cpu":
        given["host_launch_us"] = 0.0  # the processor that starts kernels is the one that computes them
    if not given.get("small_matmul_gflop", 1.0):
        peak = start.fp32_tflops or start.bf16_tflops or 1.0
        latency = start.kernel_latency_us or _KERNELS["kernel_latency_us"]
        given["small_matmul_gflop"] = peak * 1e3 * latency * 1e-6
    return _changed(start, given)


def _kernels(hardware: Hardware) -> tuple[str, ...]:
    return tuple(name for name in _KERNELS if getattr(hardware, name))


def _fitted(
    hardware: Hardware, observations: Sequence[Observation], names: Iterable[str]
) -> tuple[Hardware, tuple[str, ...]]:
    """Return the hardware with those figures fitted that the observations depend on, and their names."""
    before = [_seconds(each, hardware) for each in observations]

    def effect(name: str) -> float:
        more = _changed(hardware, {name: 1.5 * getattr(hardware, name)})
        return max(abs(_seconds(each, more) / was - 1) for each, was in zip(observations, before, strict=True))

    fitted = tuple(name for name in names if effect(name) > _LEAST_EFFECT)
    start = [float(getattr(hardware, name)) for name in fitted]

    def residuals(values: Sequence[float]) -> list[float]:
        tried = _changed(hardware, dict(zip(fitted, values, strict=True)))
        errors = [math.log(_seconds(each, tried) / each.step_s) / _NOISE for each in observations]
        return errors + [math.log(value / first) / _WIDE for value, first in zip(values, start, strict=True)]

    return _changed(hardware, dict(zip(fitted, minimised(residuals, start), strict=True))), fitted


def _with_memory(hardware: Hardware, observations: Sequence[Observation]) -> Hardware:
    """Return the hardware with the memory that does not depend on the layout: least squares of relative errors."""
    measured = [each for each in observations if each.peak_bytes is not None]
    name = "small_buffers_gib" if hardware.device == "cpu" else "workspace_gib"
    if hardware.device == "cpu":
        hardware = replace(hardware, workspace_gib=0.0)
    if not measured:
        return hardware
    above = below = 0.0
    for each in measured:
        peak = float(each.peak_bytes or 0)
        without, with_one = (_peak(each, _changed(hardware, {name: value})) for value in (0.0, 1.0))
        slope = with_one - without
        above += slope * (peak - without) / peak**2
        below += slope * slope / peak**2
    return _changed(hardware, {name: max(0.0, above / below)})


def _changed(hardware: Hardware, values: Mapping[str, float | None]) -> Hardware:
    return replace(hardware, **values)  # type: ignore[arg-type]


def _seconds(observation: Observation, hardware: Hardware) -> float:
    time = quick(replace(observation.job, hardware=hardware)).time
    if time is None:
        raise CannotFit(f"{observation.name}: no peak of {observation.job.precision.dtype} is known of this device")
    return time.step_s


def _peak(observation: Observation, hardware: Hardware) -> int:
    """Return the estimated bytes of tensors on the first rank."""
    return quick(replace(observation.job, hardware=hardware)).stages[0].peak_allocated


def _row(observation: Observation, hardware: Hardware) -> Row:
    return Row(observation=observation, step_s=_seconds(observation, hardware), peak_bytes=_peak(observation, hardware))


def outside_gib(process_bytes: int, tensor_bytes: int, mem_factor: float) -> float:
    """Return what a process holds beside its tensors: libraries, code, buffers of the communication library."""
    return max(0.0, (process_bytes - tensor_bytes / mem_factor) / GIB)
