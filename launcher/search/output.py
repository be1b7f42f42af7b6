"""Output of a search for programs: JSON and CSV."""

from __future__ import annotations

import csv
import io
from typing import Any

from launcher.job import Job, Value, with_values
from launcher.outputs.kinds import table
from launcher.search.found import Candidate, Found

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
        "works": found.works,
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
