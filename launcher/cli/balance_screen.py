"""Text output of `launch balance`: the step time first, then layers, recomputation and memory of every stage."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from launcher.balance.encode import Expressed
from launcher.balance.solve import Balanced
from launcher.balance.solve_job import Answer
from launcher.balance.strategy import strategy
from launcher.estimate.memory import GIB
from launcher.job import Value, override_text
from launcher.job.recompute import SELECTIVE_MODULES
from launcher.report.text_page import Page
from launcher.report.text_table import table
from launcher.syntax import escaped

# A smaller gap is rounding of the solver.
_EXACT = 1e-6
# So many equal chunks and more are written as 8×2: eight chunks of two layers each.
_RUN = 4


def screen(answer: Answer, page: Page) -> Iterator[str]:
    """Yield the answer: layers per stage, memory, time before and after, and backend arguments."""
    yield from _verdict(answer, page)
    yield ""
    yield from _stages(answer, page)
    yield ""
    yield from _backend(answer, page)


def _verdict(answer: Answer, page: Page) -> Iterator[str]:
    solved, (even, balanced) = answer.balanced, answer.times
    step = page.paint(f"step {balanced:.4g} s", "ok")
    fits = answer.posed.before.fits
    if even > balanced * (1 + _EXACT):
        unfit = "" if fits else ", which does not fit"
        yield f"{step}, {100 * (1 - balanced / even):.2g} % less than evenly split ({even:.4g} s{unfit})"
    elif even < balanced * (1 - _EXACT):
        yield f"{step}; evenly split it takes {even:.4g} s" + ("" if fits else " and does not fit")
    else:
        yield f"{step}, as evenly split"
    yield from _unchanged(answer, even, page)
    job = answer.job
    name = f"{escaped(job.name or 'job')} on {job.cluster.world_size} × {job.hardware.name or 'device'}"
    how = "by measured times" if answer.measured else "by the estimate"
    yield from page.join(
        [f"{name}, {how}", proof(solved, " s"), f"solved in {solved.seconds:.1f} s"], "", "  ", sign="; "
    )


def _unchanged(answer: Answer, even: float, page: Page) -> Iterator[str]:
    """Yield the step time and memory of the unchanged job, where its split is not the even one that is compared."""
    now = answer.unchanged
    if answer.measured or now is None or now.time is None or abs(now.time.step_s - even) <= even * _EXACT:
        return
    peak = max(stage.peak_reserved for stage in now.stages) + now.outside
    unfit = "" if now.fits else ", which does not fit"
    text = f"the job as it is: step {now.time.step_s:.4g} s, {peak / GIB:.1f} GiB{unfit}"
    yield from page.wrap(f"{text} (launch estimate)", "", "  ")


def proof(solved: Balanced, unit: str = "") -> str:
    """Return how far a split may be from the best.

    Args:
        unit: of the bound.
    """
    if not solved.optimal:
        return f"not proven: at most {100 * solved.gap:.2g} % above the best (bound {solved.bound:.4g}{unit})"
    if solved.gap < _EXACT:
        return "proven to be the best"
    return f"proven within {100 * solved.gap:.2g} % of the best"


def _stages(answer: Answer, page: Page) -> Iterator[str]:
    problem, split = answer.posed.problem, answer.balanced.split
    counts = {"layers": split.layers(), "recomputed": split.in_mode(problem, "full"), "in part": answer.in_part}
    shown = {name: each for name, each in counts.items() if name == "layers" or any(each)}
    capacity = (answer.after.capacity or 0) / GIB
    rows = []
    for stage, (before, after) in enumerate(zip(answer.posed.before.stages, answer.after.stages, strict=True)):
        figures = [f"{(item.peak_reserved + answer.after.outside) / GIB:.1f}" for item in (after, before)]
        rows.append([str(stage), *(_chunks(each[stage :: problem.stages]) for each in shown.values()), *figures])
    heading = ["stage", *shown, f"GiB of {capacity:g}", "evenly split"]
    yield from table(page, rows, heading, right=range(len(heading)))
    if any(_is_run(row[1 : len(shown) + 1]) for row in rows):
        yield from page.wrap("8×2: eight chunks of two layers", "", "  ")
    nothing = [name for name in counts if name not in shown]
    if "recomputed" in nothing:
        yield "no layer is recomputed" + ("" if "in part" in nothing else " in full")
    if any(answer.in_part):
        yield from page.wrap(f"in part: {_parts(answer)}", "", "  ")


def _chunks(counts: Sequence[int]) -> str:
    """Return figures of a stage's chunks as text."""
    runs = [(number, len(list(same))) for number, same in groupby(counts)]
    return " ".join(f"{size}×{number}" if size >= _RUN else " ".join([str(number)] * size) for number, size in runs)


def _is_run(cells: Sequence[str]) -> bool:
    return any("×" in cell for cell in cells)


def _parts(answer: Answer) -> str:
    """Return the partial recomputation of a layer as text."""
    names = {"recompute.activation": "activation function", "recompute.norm": "normalisations"}
    words = [text for path, text in names.items() if answer.part.get(path)]
    modules = answer.part.get("recompute.modules")
    if answer.part.get("recompute.granularity") == "selective" and not modules:
        modules = SELECTIVE_MODULES
    return ", ".join([*words, *(str(module) for module in modules)] if isinstance(modules, tuple) else words)


def _backend(answer: Answer, page: Page) -> Iterator[str]:
    expressed = answer.expressed
    if expressed is None:
        values = strategy(answer) or {}
        texts = [f"'{path}={override_text(value)}'" for path, value in values.items()]
        yield from page.join(texts, "as overrides: ", "  ", sign=" ")
        return
    if not isinstance(expressed, Expressed):
        yield f"{page.paint('error', 'error')}  {answer.job.backend.name} cannot express this split:"
        for how, why in expressed.refused:
            yield from page.wrap(f"{how}: {why}", "  ", "    ")
        return
    outcome = expressed.outcome
    for why in answer.limits:
        first, *rest = page.wrap(f"not chosen for each chunk: {why}", "warning  ", "  ")
        yield from (first.replace("warning", page.paint("warning", "warning"), 1), *rest)
    yield page.paint(f"in {outcome.backend.title} {outcome.version}, through {expressed.how}", "bold")
    native = [(arg.flag, _plain(arg.value)) for arg in expressed.native]
    yield from page.pairs(native) if native else ["  as in the job"]


def _plain(value: Value) -> str:
    """Return a value as text; names with the same value are together."""
    if isinstance(value, Mapping):
        names: dict[str, list[str]] = {}
        for name, item in value.items():
            names.setdefault(_plain(item), []).append(str(name))
        return "; ".join(f"{text} for {', '.join(same)}" for text, same in names.items())
    return "[" + ", ".join(_plain(item) for item in value) + "]" if isinstance(value, tuple) else str(value)
