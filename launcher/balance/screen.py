"""Text output of `launch balance`."""

from __future__ import annotations

from collections.abc import Mapping

from launcher.balance.encode import Expressed
from launcher.balance.from_job import RECOMPUTED, UNEVEN, short_layout
from launcher.balance.solve_job import Answer
from launcher.estimate.memory import GIB
from launcher.job import Job, Value, value_at

# Fields that a split depends on. A file with them is independent of the job's previous strategy.
_HOLDS_FOR = (
    *(f"parallel.{name}" for name in ("tp", "pp", "vpp", "cp", "ep", "etp")),
    *("batch.micro_batch_size", "parallel.sequence_parallel", "parallel.distributed_optimizer"),
)


def strategy(answer: Answer) -> dict[str, Value] | None:
    """Return the values to write, with the layout that they are for; None: the backend cannot express the split."""
    if isinstance(answer.expressed, Expressed):
        job = answer.expressed.outcome.job
        return {path: value_at(job, path) for path in (*_HOLDS_FOR, *UNEVEN, *RECOMPUTED)}
    if answer.expressed is not None:
        return None
    layout = str(answer.job.parallel.layout)
    values: dict[str, Value] = {"parallel.layout": short_layout(layout)}
    given = {path: value_at(answer.job, path) for path in RECOMPUTED}
    return values | {path: value for path, value in given.items() if value != value_at(Job(), path)}


def screen(answer: Answer) -> str:
    """Return the answer as text: layers per stage, memory, time before and after, and backend arguments."""
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
    columns = {"layers": split.layers(), "recomputed": split.in_mode(problem, "full")}
    if any(answer.in_part):
        columns["in part"] = answer.in_part
    capacity, width = answer.after.capacity or 0, _width(problem.chunks)
    rows = [f"{'stage':>5}  {''.join(f'{name:<{width}}  ' for name in columns)}GiB"]
    for stage, (before, after) in enumerate(zip(answer.posed.before.stages, answer.after.stages, strict=True)):
        own = [" ".join(f"{n:>2}" for n in counts[stage :: problem.stages]) for counts in columns.values()]
        figures = [(item.peak_reserved + answer.after.outside) / GIB for item in (before, after)]
        rows.append(
            f"{stage:>5}  {''.join(f'{text:<{width}}  ' for text in own)}{figures[1]:.1f} of {capacity / GIB:g}"
            f" (even: {figures[0]:.1f})"
        )
    if any(answer.in_part):
        rows += ["", f"in part: {_parts(answer)}"]
    return rows


def _parts(answer: Answer) -> str:
    """Return the partial recomputation of a layer as text."""
    names = {"recompute.activation": "activation function", "recompute.norm": "normalisations"}
    words = [text for path, text in names.items() if answer.part.get(path)]
    modules = answer.part.get("recompute.modules")
    if answer.part.get("recompute.granularity") == "selective" and not modules:
        modules = ("core_attn",)
    return ", ".join([*words, *(str(module) for module in modules)] if isinstance(modules, tuple) else words)


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
    lines = [f"warning: not chosen for each chunk: {why}" for why in answer.limits]
    lines.append(f"in {outcome.backend.title} {outcome.version}, through {expressed.how}:")
    native = [f"  {arg.flag} = {_plain(arg.value)}" for arg in expressed.native]
    return lines + (native or ["  as in the job"])


def _plain(value: Value) -> str:
    """Return a value as text; names with the same value are grouped under the first of them."""
    if isinstance(value, Mapping):
        names: dict[str, list[str]] = {}
        for name, item in value.items():
            names.setdefault(_plain(item), []).append(str(name))
        more = {text: f" and {len(all_) - 1} more" if len(all_) > 1 else "" for text, all_ in names.items()}
        return ", ".join(f"{text} for {all_[0]}{more[text]}" for text, all_ in names.items())
    return "[" + ", ".join(_plain(item) for item in value) + "]" if isinstance(value, tuple) else str(value)
