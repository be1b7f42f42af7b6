"""Output of a search: text, JSON, CSV and a plot."""

from __future__ import annotations

import csv
import io
from typing import Any

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
