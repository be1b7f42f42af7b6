"""Text output of an estimate."""

from launcher.estimate.effect import NO_EFFECT
from launcher.estimate.kin import Range
from launcher.estimate.memory import GIB
from launcher.estimate.profile import Profile
from launcher.estimate.result import Estimate
from launcher.job import Job, override_text

_PARTS = ("weights", "gradients", "optimizer", "activations", "workspace", "peak_allocated", "peak_reserved")
_SHOWN = 12
# No probability is shown as certain: it is computed from a few runs.
_SURE = 0.99


def screen(job: Job, answer: Estimate) -> str:
    """Return the answer as text: verdict, memory per stage, time, changes, assumptions."""
    lines = [_verdict(job, answer), "", *_memory(answer)]
    if answer.time is not None:
        lines += ["", *_time(job, answer)]
    lines += _unequal(answer)
    lines += ["", *_error(answer)]
    if answer.changes:
        lines += ["", "makes it fit, the fastest first:"]
        for change in answer.changes:
            seconds = f", {change.step_s:.3g} s/step" if change.step_s is not None else ""
            lines.append(f"  {' '.join(change.overrides)}  ({change.peak_reserved / GIB:.1f} GiB{seconds})")
    elif answer.fits is False:
        lines += [
            "",
            "no change of recomputation, layout, cross entropy, optimizer or micro-batch makes it fit on these devices",
        ]
    if answer.profile.figures:
        lines += ["", _profile(answer.profile)]
    if answer.missing:
        lines += ["", "assumed:"] + [f"  {line}" for line in _grouped(answer.missing)]
    return "\n".join(lines)


def _unequal(answer: Estimate) -> list[str]:
    """Return what unequal routing would cost."""
    found = answer.imbalance
    if found is None:
        return []
    parts = []
    if answer.time is not None and found.step_s is not None:
        parts.append(f"step {100 * (found.step_s / answer.time.step_s - 1):+.1f} %")
    parts.append(f"memory {(found.peak_reserved - answer.fullest.peak_reserved) / GIB:+.1f} GiB")
    tokens = f"with {found.factor:g} times the mean tokens on one device's experts (estimate.expert_imbalance)"
    return [f"{tokens}: {', '.join(parts)}"]


def _error(answer: Estimate) -> list[str]:
    """Return where runs like this one were: the range of memory and time, and the probability that the job fits."""
    lines = []
    if answer.memory_range is not None:
        low, high = (
            answer.fullest.peak_reserved * each for each in (answer.memory_range.low, answer.memory_range.high)
        )
        chance = f"; fits with {_percent(answer.fit_probability)}" if answer.fit_probability is not None else ""
        lines.append(f"memory {low / GIB:.1f} to {high / GIB:.1f} GiB{chance} ({_kin(answer.memory_range)})")
    if answer.time is not None and answer.time_range is not None:
        low, high = (answer.time.step_s * each for each in (answer.time_range.low, answer.time_range.high))
        lines.append(f"step {low:.3g} to {high:.3g} s ({_kin(answer.time_range)})")
    for name, found in (("memory", answer.memory_range), ("time", answer.time_range if answer.time else None)):
        if found is None and (name == "memory" or answer.time is not None):
            lines.append(f"{name}: no run like this one was measured, so its error is not known")
    return lines


def _profile(profile: Profile) -> str:
    """Return what the stack keeps and does otherwise than Megatron-core; `--json` has the source of each."""
    figures = ", ".join(f"{row.name} {override_text(row.value)}" for row in profile.figures)
    return f"profile of {profile.title}, beside Megatron-core's: {figures}"


def _percent(probability: float) -> str:
    if probability > _SURE:
        return f"more than {100 * _SURE:.0f} %"
    return f"{100 * probability:.0f} %" if probability >= 1 - _SURE else f"less than {100 * (1 - _SURE):.0f} %"


def _kin(found: Range) -> str:
    """Return what the runs are from which a range is computed."""
    same = ", ".join("kind of model" if each == "experts" else each for each in found.common)
    return f"90 % of runs, by {found.runs} measured with the same {same}"


def _verdict(job: Job, answer: Estimate) -> str:
    fullest = answer.fullest
    used = (fullest.peak_reserved + answer.outside) / GIB
    where = f"stage {fullest.stage}" if len(answer.stages) > 1 else "every device"
    devices = f"{job.cluster.world_size} × {job.hardware.name or 'device'}"
    total, active = answer.parameters["total"], answer.parameters["active"]
    model = f"{_number(total)} parameters" + (f", {_number(active)} active" if active != total else "")
    if answer.capacity is None:
        verdict = f"needs {used:.1f} GiB on {where}"
    else:
        verdict = f"{'fits' if answer.fits else 'does not fit'}: {used:.1f} of {answer.capacity / GIB:g} GiB on {where}"
    return f"{job.name or 'job'} on {devices}: {model}\n{verdict}"


def _number(count: int) -> str:
    return f"{count / 1e9:.2f} B" if count >= 1e8 else f"{count / 1e6:.2f} M"


def _memory(answer: Estimate) -> list[str]:
    header = "GiB      " + "".join(part.replace("peak_", "").rjust(13) for part in _PARTS)
    rows = [header]
    stages = list(answer.stages)
    cut = len(stages) > _SHOWN
    if cut:
        stages = [*stages[: _SHOWN // 2], *stages[-_SHOWN // 2 :]]
    for stage in stages:
        figures = "".join(f"{getattr(stage, part) / GIB:13.2f}" for part in _PARTS)
        rows.append(f"stage {stage.stage:<3}{figures}")
    if cut:
        rows.insert(1 + _SHOWN // 2, f"  … {len(answer.stages) - _SHOWN} more …")
    rows.append(f"outside the framework's allocator on each device: {answer.outside / GIB:.2f} GiB")
    return rows


def _time(job: Job, answer: Estimate) -> list[str]:
    time = answer.time
    assert time is not None
    share = 100 / time.step_s
    lines = [
        f"step {time.step_s:.4g} s: forward {time.forward_s * share:.0f} %, backward {time.backward_s * share:.0f} %"
        f" (recomputation {time.recompute_s * share:.0f} %), bubble {time.bubble_s * share:.0f} %,"
        f" exposed communication {time.exposed_comm_s * share:.0f} %, optimizer {time.optimizer_s * share:.0f} %"
    ]
    speed = answer.tokens_per_s_per_device or 0.0
    rate = (
        f"{speed:,.0f} tokens/s per device, {answer.tflops_per_device:.0f} TFLOP/s, MFU {100 * (answer.mfu or 0):.1f} %"
    )
    if answer.cost_per_billion_tokens is not None:
        rate += f", {answer.cost_per_billion_tokens:,.0f} for a billion tokens (hardware.price {job.hardware.price:g})"
    return [*lines, rate]


def _grouped(missing: tuple[str, ...]) -> list[str]:
    """Put unmeasured figures of the hardware on one line, and fields without effect on another.

    `--json` names each figure with its value.
    """
    unmeasured = [line for line in missing if line.endswith("(not measured)")]
    idle = [line for line in missing if line.endswith(NO_EFFECT)]
    rest = [line for line in missing if line not in unmeasured and line not in idle]
    if idle:
        rest.append(f"set, but without effect on the estimate: {', '.join(line.partition(':')[0] for line in idle)}")
    if unmeasured:
        names = ", ".join(line.split(":")[0].removeprefix("hardware.") for line in unmeasured[:4])
        more = f" and {len(unmeasured) - 4} more" if len(unmeasured) > 4 else ""
        rest.append(f"hardware: {len(unmeasured)} figures not measured on it ({names}{more}; --json has all)")
    return rest
