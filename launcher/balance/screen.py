"""The answer of `launch balance` on one screen."""

from __future__ import annotations

from launcher.balance.answer import Answer
from launcher.balance.express import Expressed
from launcher.balance.from_job import UNEVEN, short_layout
from launcher.estimate.memory import GIB
from launcher.job import Value, value_at

# What a split holds for. A file with it stands alone, whatever strategy the job had before.
_HOLDS_FOR = (
    *(f"parallel.{name}" for name in ("tp", "pp", "vpp", "cp", "ep", "etp")),
    *("batch.micro_batch_size", "parallel.sequence_parallel", "parallel.distributed_optimizer"),
)
_RECOMPUTE = tuple(f"recompute.{name}" for name in ("granularity", "method", "num_layers", "layers_per_chunk"))


def strategy(answer: Answer) -> dict[str, Value] | None:
    """Return the values to write, with the layout that they are for; None: the backend cannot express the split."""
    if isinstance(answer.expressed, Expressed):
        job = answer.expressed.outcome.job
        return {path: value_at(job, path) for path in (*_HOLDS_FOR, *UNEVEN, *_RECOMPUTE)}
    if answer.expressed is not None:
        return None
    layout = str(answer.job.parallel.layout)
    values: dict[str, Value] = {"parallel.layout": short_layout(layout)}
    if answer.job.recompute.granularity == "full":
        for name in ("granularity", "method", "num_layers"):
            values[f"recompute.{name}"] = getattr(answer.job.recompute, name)
    return values


def screen(answer: Answer) -> str:
    """Return the answer as text: layers per stage, memory, time before and after, and how the backend says it."""
    return "\n".join([_verdict(answer), "", *_stages(answer), "", *_backend(answer)])


def _verdict(answer: Answer) -> str:
    solved, how = answer.balanced, "by measured times: " if answer.measured else "estimated "
    name = f"{answer.job.name or 'job'} on {answer.job.cluster.world_size} × {answer.job.hardware.name or 'device'}"
    proof = (
        f"proven within {100 * solved.gap:.2g} % of the best"
        if solved.optimal
        else f"not proven: at most {100 * solved.gap:.2g} % above the best (bound {solved.bound:.4g} s)"
    )
    fits = "" if answer.posed.before.fits else " (which does not fit)"
    return (
        f"{name}\n{how}step {answer.times[1]:.4g} s, evenly split {answer.times[0]:.4g} s{fits}; "
        f"{proof}, {solved.seconds:.1f} s"
    )


def _stages(answer: Answer) -> list[str]:
    problem, split = answer.posed.problem, answer.balanced.split
    layers, again = split.layers(), split.in_mode(problem, "full")
    capacity = answer.after.capacity or 0
    rows = [f"{'stage':>5}  {'layers':<{_width(problem.chunks)}}  {'recomputed':<{_width(problem.chunks)}}  GiB"]
    for stage, (before, after) in enumerate(zip(answer.posed.before.stages, answer.after.stages, strict=True)):
        own = [" ".join(f"{n:>2}" for n in part[stage :: problem.stages]) for part in (layers, again)]
        width = _width(problem.chunks)
        figures = [(item.peak_reserved + answer.after.outside) / GIB for item in (before, after)]
        rows.append(
            f"{stage:>5}  {own[0]:<{width}}  {own[1]:<{width}}  {figures[1]:.1f} of {capacity / GIB:g}"
            f" (even: {figures[0]:.1f})"
        )
    return rows


def _width(chunks: int) -> int:
    return max(10, 3 * chunks)


def _backend(answer: Answer) -> list[str]:
    expressed = answer.expressed
    if expressed is None:
        values = strategy(answer) or {}
        return ["as overrides: " + " ".join(f"'{path}={value}'" for path, value in values.items())]
    if not isinstance(expressed, Expressed):
        name = answer.job.backend.name
        return [f"warning: {name} cannot express this split:", *(f"  {how}: {why}" for how, why in expressed.refused)]
    outcome = expressed.outcome
    lines = [f"in {outcome.backend.title} {outcome.version}, through {expressed.how}:"]
    native = [f"  {arg.flag} = {_plain(arg.value)}" for arg in expressed.native]
    return lines + (native or ["  as the job has it"])


def _plain(value: Value) -> str:
    return "[" + ", ".join(_plain(item) for item in value) + "]" if isinstance(value, tuple) else str(value)
