"""Output of a search: text, JSON, CSV and a plot."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from launcher.estimate.drawing import GREY, GRID, Box, Drawing, Line, Text
from launcher.estimate.kin import spread
from launcher.estimate.memory import GIB
from launcher.job import Job, Value, with_values
from launcher.outputs.kinds import table
from launcher.search.found import Candidate, Found
from launcher.search.points import PARTLY, SWITCHED

_SIZES = ("tp", "pp", "vpp", "cp", "ep", "etp", "dp")


def sizes_of(job: Job, candidate: Candidate) -> dict[str, int]:
    """Return the parallel sizes of a candidate, data parallel size included."""
    parallel = with_values(job, candidate.values).parallel
    return {name: getattr(parallel, name) or 1 for name in _SIZES}


def recompute_of(candidate: Candidate) -> str:
    """Return a short description of a candidate's recomputation."""
    granularity = candidate.point["recompute.granularity"]
    if granularity is None:
        return "selective" if candidate.point["recompute.activation"] or candidate.point["recompute.norm"] else "none"
    layers = candidate.point["recompute.num_layers"]
    return f"{layers} layers" if candidate.point["recompute.method"] == "block" else str(granularity)


def screen(job: Job, found: Found) -> str:
    """Return the best candidates, and why the others were rejected."""
    name = f"{job.name or 'job'} on {job.cluster.world_size} × {job.hardware.name or 'device'}"
    state = "" if found.complete else f"stopped: {found.settled:,} of "
    head = [f"{name}: {state}{found.points:,} points, {found.estimates:,} estimated, {found.seconds:.1f} s"]
    if found.capacity:
        head.append(_limit(job, found))
    if not found.best:
        return "\n".join([*head, *_none(job, found), *_rejected(found)])
    rows = ["  tp  pp vpp  cp  ep etp   dp  mbs  sp zero  recompute    GiB   s/step    MFU  bubble"]
    rows += [_row(job, candidate) for candidate in found.best]
    uneven = [f"  {number}: {text}" for number, text in enumerate(map(_uneven, found.best), start=1) if text]
    sections = [*_switches(found.best), *(["", "uneven stages:", *uneven] if uneven else [])]
    return "\n".join([*head, "", *rows, *sections, "", *_rejected(found)])


def _switches(best: list[Candidate]) -> list[str]:
    """Return which switches and recomputed parts differ from the job's: first what all candidates have in common."""
    each = [{path: value for path, value in one.values.items() if path in (*SWITCHED, *PARTLY)} for one in best]
    common = dict(item for item in each[0].items() if all(item in other.items() for other in each))
    lines = [f"  all: {_values(common)}"] if common else []
    for number, values in enumerate(each, start=1):
        own = {path: value for path, value in values.items() if path not in common}
        lines += [f"  {number}: {_values(own)}"] if own else []
    return ["", "switches:", *lines] if lines else []


def _values(values: dict[str, Value]) -> str:
    return ", ".join(f"{path}={shown(value)}" for path, value in values.items())


def shown(value: Value) -> str:
    """Return a value as an override has it; none for a field without an opinion."""
    if isinstance(value, tuple) and value:
        return f"[{','.join(map(str, value))}]"
    return "none" if value in (None, ()) else str(value).lower() if isinstance(value, bool) else str(value)


def _limit(job: Job, found: Found) -> str:
    """Return up to which estimate a candidate counts as one that fits."""
    room = f"fits: up to {found.limit / GIB:.1f} of {found.capacity / GIB:g} GiB by the estimate"
    if job.search.fit_probability is None:
        return room
    kin = spread(job, "memory")
    if kin is None:
        return f"{room}; no run like this one was measured, so its error is not known"
    return f"{room}, so that {100 * job.search.fit_probability:g} % of runs fit, by {kin.runs} measured ones"


def _row(job: Job, candidate: Candidate) -> str:
    size, point = sizes_of(job, candidate), candidate.point
    numbers = f"{size['tp']:4}{size['pp']:4}{size['vpp']:4}{size['cp']:4}{size['ep']:4}{size['etp']:4}{size['dp']:5}"
    switches = [("on" if point[f"parallel.{name}"] else "-") for name in ("sequence_parallel", "distributed_optimizer")]
    return (
        f"{numbers}{point['batch.micro_batch_size']:5}{switches[0]:>4}{switches[1]:>5}  {recompute_of(candidate):<10}"
        f"{candidate.peak / GIB:6.1f}{candidate.step_s:9.4g}{100 * candidate.mfu:6.1f} %"
        f"{100 * candidate.bubble_s / candidate.step_s:6.1f} %"
    )


def _uneven(candidate: Candidate) -> str:
    names = ("parallel.layout", "parallel.first_stage_layers", "parallel.last_stage_layers", "parallel.noop_layers")
    return ", ".join(f"{name}={candidate.point[name]}" for name in names if candidate.point[name] not in (None, ()))


def _none(job: Job, found: Found) -> list[str]:
    if not found.nearest:
        return ["no layout passes the rules; rejected by:"]
    lines = ["no layout fits; the closest:"]
    for candidate in found.nearest:
        lacks = (candidate.peak - found.limit) / GIB
        lines.append(f"  {_row(job, candidate).strip()}: exceeds memory by {lacks:.1f} GiB on stage {candidate.stage}")
    return lines


def _rejected(found: Found) -> list[str]:
    rest = [f"{found.too_big:,} out of memory"] if found.too_big else []
    rest += [f"{found.too_slow:,} pruned by their bound"] if found.too_slow else []
    rest += [f"{count:,} by {rule}" for rule, count in list(found.refusals.items())[:6]]
    more = len(found.refusals) - 6
    rest += [f"and {more} more rules"] if more > 0 else []
    return ["rejected: " + ", ".join(rest)] if rest else []


def as_tree(job: Job, found: Found) -> dict[str, Any]:
    """Return the output of `--json`."""
    return {
        "complete": found.complete,
        "points": found.points,
        "settled": found.settled,
        "estimated": found.estimates,
        "seconds": found.seconds,
        "capacity": found.capacity,
        "limit": found.limit,
        "candidates": [_tree(job, candidate) for candidate in found.best],
        "nearest": [
            {**_tree(job, candidate), "lacks": candidate.peak - found.limit, "stage": candidate.stage}
            for candidate in ([] if found.best else found.nearest)
        ],
        "refused": found.refusals,
        "too_big": found.too_big,
        "too_slow": found.too_slow,
    }


def _tree(job: Job, candidate: Candidate) -> dict[str, Any]:
    return {
        **sizes_of(job, candidate),
        "micro_batch_size": candidate.point["batch.micro_batch_size"],
        "recompute": recompute_of(candidate),
        "overrides": candidate.values,
        "step_s": candidate.step_s,
        "peak_reserved": candidate.peak,
        "mfu": candidate.mfu,
        "bubble_s": candidate.bubble_s,
        "tokens_per_s_per_device": candidate.tokens_per_s_per_device,
    }


# The first five columns are those of Taylor's nd_candidate_config.csv (memory in MB).
_COLUMNS = (
    *("dp", "tp", "pp", "ep", "peakMem", "cp", "vpp", "etp", "micro_batch_size", "sequence_parallel"),
    *("distributed_optimizer", "recompute", "step_s", "mfu"),
)


CANDIDATES = table("a table of candidates", *_COLUMNS)
"""The columns that `--csv` writes."""


def csv_text(job: Job, found: Found) -> str:
    """Return every candidate that fits as CSV, the fastest first."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for candidate in sorted(found.fitting, key=lambda each: each.order):
        size, point = sizes_of(job, candidate), candidate.point
        row = {
            **size,
            "peakMem": round(candidate.peak / 2**20, 1),
            "micro_batch_size": point["batch.micro_batch_size"],
            "sequence_parallel": point["parallel.sequence_parallel"],
            "distributed_optimizer": point["parallel.distributed_optimizer"],
            "recompute": recompute_of(candidate),
            "step_s": f"{candidate.step_s:.6g}",
            "mfu": f"{candidate.mfu:.4f}",
        }
        writer.writerow([row[name] for name in _COLUMNS])
    return out.getvalue()


def strategy(candidate: Candidate) -> dict[str, Value]:
    """Return the values of a candidate to write: all that it sets, including those equal to the job's values."""
    return dict(candidate.point)


_LEFT, _TOP, _WIDTH, _HEIGHT = 90.0, 60.0, 820.0, 420.0


def pareto(job: Job, found: Found) -> Drawing:
    """Return a plot of memory against step time of every candidate that fits, with the Pareto front marked."""
    drawing = Drawing(width=_LEFT + _WIDTH + 60, height=_TOP + _HEIGHT + 70)
    title = f"{job.name or 'job'} on {job.cluster.world_size} × {job.hardware.name or 'device'}: memory and step time"
    drawing.texts.append(Text(x=_LEFT, y=30, text=title, size=16, bold=True))
    shown = sorted(found.fitting, key=lambda each: each.order)
    if not shown:
        return drawing
    slowest = min(shown[-1].step_s, 3 * shown[0].step_s)
    shown = [candidate for candidate in shown if candidate.step_s <= slowest]
    low, high = 0.95 * shown[0].step_s, 1.05 * shown[-1].step_s
    most = found.capacity / GIB
    _axes(drawing, low, high, most)
    least = float("inf")
    for candidate in shown:
        x = _LEFT + candidate.peak / GIB / most * _WIDTH
        y = _TOP + _HEIGHT - (candidate.step_s - low) / (high - low) * _HEIGHT
        undominated, least = candidate.peak < least, min(least, candidate.peak)
        size, colour = (9.0, "#d55e00") if undominated else (4.0, "#56b4e9")
        text = f"{candidate.step_s:.4g} s, {candidate.peak / GIB:.1f} GiB: " + ", ".join(
            f"{name}={number}" for name, number in sizes_of(job, candidate).items()
        )
        drawing.boxes.append(Box(x=x - size / 2, y=y - size / 2, width=size, height=size, colour=colour, title=text))
    return drawing


def _axes(drawing: Drawing, low: float, high: float, most: float) -> None:
    bottom = _TOP + _HEIGHT
    for step in range(6):
        share = step / 5
        x, y = _LEFT + share * _WIDTH, bottom - share * _HEIGHT
        drawing.lines.append(Line(x1=x, y1=_TOP, x2=x, y2=bottom, colour=GRID))
        drawing.lines.append(Line(x1=_LEFT, y1=y, x2=_LEFT + _WIDTH, y2=y, colour=GRID))
        drawing.texts.append(Text(x=x, y=bottom + 20, text=f"{share * most:.0f}", anchor="middle", colour=GREY))
        seconds = f"{low + share * (high - low):.3g}"
        drawing.texts.append(Text(x=_LEFT - 8, y=y + 4, text=seconds, anchor="end", colour=GREY))
    drawing.texts.append(
        Text(x=_LEFT + _WIDTH, y=bottom + 44, text="GiB on the fullest device", anchor="end", colour=GREY)
    )
    drawing.texts.append(Text(x=_LEFT, y=_TOP - 8, text="seconds per step", colour=GREY))
    drawing.boxes.append(Box(x=_LEFT, y=bottom + 34, width=9, height=9, colour="#d55e00"))
    drawing.texts.append(Text(x=_LEFT + 16, y=bottom + 43, text="Pareto-optimal", colour=GREY))


def write_pareto(path: Path, job: Job, found: Found) -> str | None:
    """Write the picture (.html, .svg or .png); return an error message on failure."""
    from launcher.estimate.plot import write_drawing

    return write_drawing(path, pareto(job, found), f"{job.name or 'job'}: search")
