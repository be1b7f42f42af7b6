"""Text output of a search: the fastest first, then the best candidates side by side, and why others were rejected."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from launcher.estimate.kin import spread
from launcher.estimate.memory import GIB
from launcher.job import Job, Value, override_text
from launcher.report.text_page import Page
from launcher.report.text_table import table
from launcher.search.compare import TERMS, Comparison
from launcher.search.found import Candidate, Found
from launcher.search.output import recompute_of, sizes_of
from launcher.search.points import PARTLY, SWITCHED
from launcher.search.ranking import figures_of, recompute_of_ranked
from launcher.search.rerank import Ranking
from launcher.syntax import escaped
from launcher.terminal import counted

_UNEVEN = ("parallel.layout", "parallel.first_stage_layers", "parallel.last_stage_layers", "parallel.noop_layers")
_SWITCHES = {"sp": "parallel.sequence_parallel", "zero": "parallel.distributed_optimizer"}
_Group = TypeVar("_Group")
# Rules whose numbers of rejected points are shown.
_MOST = 6


def screen(job: Job, found: Found, page: Page, notes: Sequence[str] = ()) -> Iterator[str]:
    """Yield the answer, the best candidates as a table, what the table does not hold, and why others were rejected.

    Args:
        notes: what else was narrowed down before the search.
    """
    yield from _answer(found, page)
    state = "" if found.complete else f"stopped after {found.settled:,} of "
    size = f"{state}{found.points:,} points, {found.estimates:,} estimated in {found.seconds:.1f} s"
    yield from page.wrap(f"{_about(job)}: {size}", "", "  ")
    if found.capacity:
        yield from page.wrap(_limit(job, found), "", "  ")
    for note in notes:
        yield from page.wrap(note, "", "  ")
    shown = found.best or found.nearest
    if shown:
        yield ""
        yield from _candidates(job, found, shown, page)
        if len(shown) > 1 or not found.best:  # else the answer has them all
            yield from _also(shown, page)
    yield from _rejected(found, page)


def _answer(found: Found, page: Page) -> Iterator[str]:
    if found.best:
        best = found.best[0]
        memory = f"{best.peak / GIB:.1f}" + (f" of {found.capacity / GIB:g}" if found.capacity else "")
        title = page.paint("fastest" if found.complete else "fastest so far", "ok")
        yield f"{title}: {best.step_s:.4g} s/step, {memory} GiB, MFU {100 * best.mfu:.1f} %"
        changes = [shlex.quote(f"{path}={override_text(value)}") for path, value in best.values.items()]
        yield from page.join(changes or ["the job as it is"], "  ", "  ", sign=" ")
    elif found.nearest:
        nearest = found.nearest[0]
        lacks = f"the closest exceeds memory by {(nearest.peak - found.limit) / GIB:.1f} GiB on stage {nearest.stage}"
        yield f"{page.paint('no layout fits', 'error')}: {lacks}"
    elif found.complete:
        yield page.paint("no layout passes the rules", "error")
    else:
        yield page.paint("nothing found so far", "error")
    if found.works:
        yield from page.join(found.works, "  works: ", "    ", sign=" · ")


def _about(job: Job) -> str:
    return f"{escaped(job.name or 'job')} on {job.cluster.world_size} × {job.hardware.name or 'device'}"


def _limit(job: Job, found: Found) -> str:
    """Return up to which estimate a candidate counts as one that fits."""
    room = f"fits: up to {found.limit / GIB:.1f} of {found.capacity / GIB:g} GiB by the estimate"
    if job.search.fit_probability is None:
        return room
    kin = spread(job, "memory")
    if kin is None:
        return f"{room}; no run like this one was measured, so its error is not known"
    return f"{room}, so that {100 * job.search.fit_probability:g} % of runs fit, by {kin.runs} measured ones"


# -- the best candidates


def _layout(job: Job, candidate: Candidate) -> dict[str, str]:
    """Return the columns that say what a candidate is."""
    columns = {name: str(size) for name, size in sizes_of(job, candidate).items()}
    columns["mbs"] = str(candidate.point["batch.micro_batch_size"])
    return columns | {name: "on" if candidate.point[path] else "-" for name, path in _SWITCHES.items()}


def _candidates(job: Job, found: Found, shown: Sequence[Candidate], page: Page) -> Iterator[str]:
    rows = []
    for candidate in shown:
        row = {**_layout(job, candidate), "recompute": recompute_of(candidate), "GiB": f"{candidate.peak / GIB:.1f}"}
        row |= {"s/step": f"{candidate.step_s:.4g}", "MFU %": f"{100 * candidate.mfu:.1f}"}
        row["bubble %"] = f"{100 * candidate.bubble_s / candidate.step_s:.1f}"
        if not found.best:
            row |= {"exceeds by": f"{(candidate.peak - found.limit) / GIB:.1f}", "stage": str(candidate.stage)}
        rows.append(row)
    yield from _numbered(rows, page, {"GiB", "s/step", "MFU %", "bubble %", "exceeds by", "stage"})


def _numbered(rows: Sequence[Mapping[str, str]], page: Page, figures: set[str]) -> Iterator[str]:
    """Yield a table of numbered rows; a line below it has the columns in which all are the same.

    Args:
        figures: columns that stay in the table.
    """
    first = rows[0]
    same = [name for name in first if name not in figures and len(rows) > 1 and len({row[name] for row in rows}) == 1]
    columns = [name for name in first if name not in same]
    cells = [[str(number), *(row[name] for name in columns)] for number, row in enumerate(rows, start=1)]
    right = [at for at, name in enumerate(["#", *columns]) if name not in ("recompute", *_SWITCHES)]
    yield from table(page, cells, ["#", *columns], right=right)
    if same:
        yield from page.join([f"{name} {first[name]}" for name in same], "all: ", "  ", sign=", ")


def _also(shown: Sequence[Candidate], page: Page) -> Iterator[str]:
    """Yield the changes of candidates that no column has: first what all have in common, then each one's own."""
    each = [dict(_further(one)) for one in shown]
    common = dict(item for item in each[0].items() if all(item in other.items() for other in each))
    own = [{path: value for path, value in values.items() if path not in common} for values in each]
    groups = [(common, "all")] if common else []
    groups += [(dict(values), label) for values, label in _grouped([tuple(values.items()) for values in own])]
    groups = [(values, label) for values, label in groups if values]
    if not groups:
        return
    yield from ("", page.paint("also set", "bold"))
    for values, label in groups:
        changes = [f"{path}={override_text(value)}" for path, value in values.items()]
        yield from page.join(changes, f"  {label}: ", "    ", sign=", ")


def _further(candidate: Candidate) -> Iterator[tuple[str, Value]]:
    """Yield the changes that no column has; of several ways to split the layers, the one that is used."""
    for path, value in candidate.values.items():
        if path in (*SWITCHED, *PARTLY) or (path in _UNEVEN and value not in (None, ())):
            yield path, value


def _grouped(texts: Sequence[_Group]) -> Iterator[tuple[_Group, str]]:
    """Yield each text once, with the numbers of the candidates that have it."""
    groups: list[tuple[_Group, list[int]]] = []
    for number, text in enumerate(texts, start=1):
        same = next((numbers for other, numbers in groups if other == text), None)
        if same is None:
            groups.append((text, [number]))
        else:
            same.append(number)
    for text, numbers in groups:
        yield text, "all" if len(numbers) == len(texts) > 1 else _ranges(numbers)


def _ranges(numbers: Sequence[int]) -> str:
    """Return ascending numbers as text: 1–4, 9."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)


def _rejected(found: Found, page: Page) -> Iterator[str]:
    rest = [f"{found.too_big:,} out of memory"] if found.too_big else []
    rest += [f"{found.too_slow:,} pruned by their bound"] if found.too_slow else []
    rest += [f"{count:,} by {rule}" for rule, count in list(found.refusals.items())[:_MOST]]
    more = len(found.refusals) - _MOST
    rest += [f"and by {counted(more, 'more rule')} (--json)"] if more > 0 else []
    if rest:
        yield from ("", *page.join(rest, "rejected: ", "  ", sign=", "))


# -- ranked by measured times


def ranking_screen(job: Job, found: Found, ranking: Ranking, page: Page) -> Iterator[str]:
    """Yield the candidates ranked by measured times, beside the estimated ones."""
    best = ranking.ranked[0]
    if best.fits:
        times = f"{best.step_s:.4g} s/step ({best.candidate.step_s:.4g} estimated), {best.peak / GIB:.1f} GiB"
        yield f"{page.paint('fastest', 'ok')}: {times}"
    else:
        yield page.paint("no measured layout fits", "error")
    measured = sum(each.row is not None for each in ranking.ranked)
    counts = f"{measured} of {counted(len(ranking.ranked), 'candidate')} measured, {found.points:,} points searched"
    yield from page.wrap(f"{_about(job)}: {counts}", "", "  ")
    yield ""
    rows = []
    for each in ranking.ranked:
        row = {**_layout(job, each.candidate), "recompute": recompute_of_ranked(each), "GiB": f"{each.peak / GIB:.1f}"}
        row["s/step"] = f"{each.step_s:.4g}" if each.fits else "-"
        rows.append(row | {"estimated": f"{each.candidate.step_s:.4g}"})
    yield from _numbered(rows, page, {"GiB", "s/step", "estimated"})
    bases = [tuple(figures_of(each)) or ("nothing",) for each in ranking.ranked]
    yield from ("", page.paint("measured", "bold"))
    for figures, label in _grouped(bases):
        yield from page.join(figures, f"  {label}: ", "    ", sign=", ")
    yield from _notes(ranking, page)


def _notes(ranking: Ranking, page: Page) -> Iterator[str]:
    notes = [f"{number}: {each.why}" for number, each in enumerate(ranking.ranked, start=1) if each.why]
    notes += [f"line {row.line} ({row.name}): not a candidate of this search" for row in ranking.unmatched]
    if any(each.row is None for each in ranking.ranked):
        notes.append("not measured: the estimate's times; compare them with care")
    if notes:
        yield from ("", page.paint("notes", "bold"))
        for note in notes:
            yield from page.wrap(note, "  ", "    ")


# -- the user's own layout


def comparison_screen(found: Comparison, limit: int, page: Page) -> Iterator[str]:
    """Yield the user's layout beside the fastest: its rank, and what separates them."""
    own, winner = found.own, found.winner
    head = f"your layout: {own.step_s:.4g} s/step, {own.peak / GIB:.1f} GiB"
    if not own.fits:
        exceeds = f"exceeds memory by {(own.peak - limit) / GIB:.1f} GiB on stage {own.stage}"
        head += f": {page.paint(exceeds, 'error')}"
    elif found.rank is not None:
        head += f": number {found.rank:,} by step time"
    yield head
    if winner is None:
        return
    yield f"the fastest: {winner.step_s:.4g} s/step, {winner.peak / GIB:.1f} GiB"
    yield ""
    rows = []
    for name, title in TERMS.items():
        if name in found.terms:
            mine, its = found.terms[name]
            rows.append([title, f"{mine:.4g}", f"{its:.4g}", f"{its - mine:+.4g}"])
    heading = ("seconds of a step", "yours", "fastest", "difference")
    yield from table(page, rows, heading, right=(1, 2, 3), indent="  ")
    yield ""
    changes = [(path, f"{_shown(mine)} → {_shown(its)}") for path, (mine, its) in sorted(found.values.items())]
    for path, change in changes:
        yield from page.wrap(f"{path}: {change}", "  ", "    ")


def _shown(value: Value) -> str:
    """Return a value as an override has it; none for a field without an opinion."""
    return "none" if value in (None, ()) else override_text(value)
