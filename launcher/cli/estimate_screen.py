"""Text output of an estimate: the answer first, then memory and time as bars."""

from collections.abc import Iterator, Sequence

from launcher.estimate.estimate import uncounted
from launcher.estimate.hardware import timed_hardware
from launcher.estimate.kin import Range
from launcher.estimate.memory import GIB
from launcher.estimate.result import MEMORY_PARTS, Estimate, StageMemory, StepTime
from launcher.job import Job
from launcher.report.text_page import Page, cells
from launcher.terminal import parameters

# No probability is shown as certain: it is computed from a few runs.
_SURE = 0.99
_KINDS = tuple(zip(MEMORY_PARTS, "WGOAK", strict=True))
_REST = ":"
# Letters tell the kinds apart without colour; these are the colours of the terminal's own palette.
_COLOURS = {
    "W": "34",
    "G": "32",
    "O": "33",
    "A": "35",
    "K": "36",
    "F": "34",
    "B": "32",
    "R": "33",
    "C": "31",
    "U": "36",
}
_WIDEST = 100
_LONG = 12


def screen(job: Job, answer: Estimate, page: Page, *, why: bool = False) -> list[str]:
    """Return the answer as lines: verdict, speed, memory of each stage, changes that make it fit.

    Args:
        why: what was assumed follows.
    """
    lines = [*_verdict(job, answer, page), ""]
    lines += _memory(answer, page)
    if answer.time is not None:
        lines += ["", *_time(answer.time, page)]
    lines += _changes(answer, page)
    if answer.missing and not why:
        lines += ["", f"{len(answer.missing)} figures are assumed (--why)"]
    return lines


# -- the answer


def _verdict(job: Job, answer: Estimate, page: Page) -> Iterator[str]:
    fullest = answer.fullest
    used = (fullest.peak_reserved + answer.outside) / GIB
    where = f"stage {fullest.stage}" if len(answer.stages) > 1 else "every device"
    devices = f"{job.cluster.world_size} × {job.hardware.name or 'device'}"
    total, active = answer.parameters["total"], answer.parameters["active"]
    model = f"{parameters(total)} parameters" + (f", {parameters(active)} active" if active != total else "")
    if answer.capacity is None:
        verdict = f"needs {used:.1f} GiB on {where}"
    else:
        word = page.paint("fits", "ok") if answer.fits else page.paint("does not fit", "error")
        verdict = f"{word}: {used:.1f} of {answer.capacity / GIB:g} GiB on {where}"
    yield verdict
    if answer.time is not None:
        yield from page.wrap(f"step {answer.time.step_s:.4g} s: {_speed(job, answer)}", "", "  ")
    else:
        yield from page.wrap(_untimed(job), "", "  ")
    yield from page.wrap(f"{job.name or 'job'} on {devices}: {model}", "", "  ")
    for line in (*filter(None, (uncounted(job),)), *_error(answer)):
        yield from page.wrap(line, "", "  ")


def _untimed(job: Job) -> str:
    """Return why there is no step time, and what gives one."""
    machine = f" of {job.hardware.name}" if job.hardware.name else ""
    works = next(timed_hardware(job), "")
    return f"step: no time, as the peak{machine} is not known (hardware.bf16_tflops)" + (works and f"; works: {works}")


def _speed(job: Job, answer: Estimate) -> str:
    speed = answer.tokens_per_s_per_device or 0.0
    rate = (
        f"{speed:,.0f} tokens/s per device, {answer.tflops_per_device:.0f} TFLOP/s, MFU {100 * (answer.mfu or 0):.1f} %"
    )
    if answer.cost_per_billion_tokens is not None:
        rate += f", {answer.cost_per_billion_tokens:,.0f} for a billion tokens (hardware.price {job.hardware.price:g})"
    return rate


def _error(answer: Estimate) -> Iterator[str]:
    """Yield where runs like this one were: the range of memory and time, and the probability that the job fits."""
    if answer.memory_range is not None:
        # With what the allocator does not hold, as in the first line: the range is beside that figure.
        low, high = (
            answer.fullest.peak_reserved * each + answer.outside
            for each in (answer.memory_range.low, answer.memory_range.high)
        )
        chance = f"; fits with {_percent(answer.fit_probability)}" if answer.fit_probability is not None else ""
        yield f"memory {low / GIB:.1f} to {high / GIB:.1f} GiB{chance} ({_kin(answer.memory_range)})"
    if answer.time is not None and answer.time_range is not None:
        low, high = (answer.time.step_s * each for each in (answer.time_range.low, answer.time_range.high))
        yield f"step {low:.3g} to {high:.3g} s ({_kin(answer.time_range)})"
    for name, found in (("memory", answer.memory_range), ("time", answer.time_range if answer.time else None)):
        if found is None and (name == "memory" or answer.time is not None):
            yield f"{name}: no run like this one was measured, so its error is not known"


def _percent(probability: float) -> str:
    if probability > _SURE:
        return f"more than {100 * _SURE:.0f} %"
    return f"{100 * probability:.0f} %" if probability >= 1 - _SURE else f"less than {100 * (1 - _SURE):.0f} %"


def _kin(found: Range) -> str:
    """Return what the runs are from which a range is computed."""
    same = ", ".join("kind of model" if each == "experts" else each for each in found.common)
    return f"90 % of runs, by {found.runs} measured with the same {same}"


def _changes(answer: Estimate, page: Page) -> Iterator[str]:
    if answer.changes:
        yield from ("", page.paint("makes it fit, the fastest first", "bold"))
        for change in answer.changes:
            seconds = f", {change.step_s:.3g} s/step" if change.step_s is not None else ""
            figures = f"({change.peak_reserved / GIB:.1f} GiB{seconds})"
            yield from page.join([*change.overrides[:-1], f"{change.overrides[-1]} ", figures], "  ", "    ", sign=" ")
    elif answer.fits is False:
        text = (
            "no change of recomputation, layout, cross entropy, optimizer or micro-batch makes it fit on these devices"
        )
        yield from ("", *page.wrap(text))


# -- bars


def folded(stages: Sequence[StageMemory]) -> list[tuple[str, StageMemory]]:
    """Return stages with their labels; neighbours that are equal to 0.01 GiB are one, in long pipelines to 1 GiB."""
    for digits in (2, 0):
        groups: list[list[StageMemory]] = []
        for stage in stages:
            if groups and _figures(groups[-1][0], digits) == _figures(stage, digits):
                groups[-1].append(stage)
            else:
                groups.append([stage])
        if len(groups) <= _LONG:
            break
    return [(_label(group), group[0]) for group in groups]


def _label(group: Sequence[StageMemory]) -> str:
    first, last = group[0].stage, group[-1].stage
    return f"stage {first}" if first == last else f"stages {first}–{last}"


def _figures(stage: StageMemory, digits: int) -> tuple[float, ...]:
    return tuple(round(getattr(stage, name) / GIB, digits) for name, _ in (*_KINDS, ("peak_reserved", "")))


def _memory(answer: Estimate, page: Page) -> Iterator[str]:
    """Yield a bar for each group of equal stages: what is kept, by kind, up to the device's memory."""
    rows = folded(answer.stages)
    top = max((stage.peak_reserved + answer.outside for _, stage in rows), default=1)
    full = max(answer.capacity or 0, top)
    label = max(cells(name) for name, _ in rows)
    width = max(10, min(_WIDEST, page.width or 80) - label - 15)
    fullest = answer.fullest
    legend = [f"{sign} {name} {getattr(fullest, name) / GIB:.2f}" for name, sign in _KINDS]
    rest = fullest.peak_reserved + answer.outside - sum(getattr(fullest, name) for name, _ in _KINDS)
    legend.append(f"{_REST} other {rest / GIB:.2f}")
    yield page.paint("memory" + (f" of {answer.capacity / GIB:g} GiB" if answer.capacity else ""), "bold")
    for name, stage in rows:
        used = stage.peak_reserved + answer.outside
        parts = [(sign, float(getattr(stage, kind))) for kind, sign in _KINDS]
        bar = _bar([*parts, (_REST, used - sum(size for _, size in parts))], full, width, page)
        end = " " if not answer.capacity else "!" if used > answer.capacity else "|"
        yield f"  {name}{' ' * (label - cells(name))}  {bar}{end} {used / GIB:5.1f} GiB"
    yield from page.join(legend, "  ", "  ", sign=", ")


def _time(time: StepTime, page: Page) -> Iterator[str]:
    """Yield one bar for the parts of a step, and their shares."""
    parts = [
        ("forward", "F", time.forward_s),
        ("backward", "B", time.backward_s - time.recompute_s),
        ("recomputation", "R", time.recompute_s),
        ("bubble", ".", time.bubble_s),
        ("exposed communication", "C", time.exposed_comm_s),
        ("optimizer", "U", time.optimizer_s),
    ]
    width = min(_WIDEST, page.width or 80) - 4
    yield page.paint(f"step {time.step_s:.4g} s", "bold")
    yield "  " + _bar([(sign, seconds) for _, sign, seconds in parts], time.step_s, width, page).rstrip()
    shares = [f"{sign} {name} {100 * seconds / time.step_s:.0f} %" for name, sign, seconds in parts]
    yield from page.join(shares, "  ", "  ", sign=", ")


def _bar(parts: Sequence[tuple[str, float]], full: float, width: int, page: Page) -> str:
    """Return parts as letters, each as long as its share of `full`; the sum of rounded parts is the rounded sum."""
    text, total, used = "", 0.0, 0
    for sign, size in parts:
        total += max(0.0, size)
        end = min(width, round(total / full * width)) if full else 0
        run = sign * (end - used)
        code = _COLOURS.get(sign)
        text += f"\x1b[{code}m{run}\x1b[0m" if page.colour and code and run else run
        used = max(used, end)
    return text + " " * (width - used)
