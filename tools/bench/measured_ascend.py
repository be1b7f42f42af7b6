"""Rows of MindFormers' and MindSpeed-LLM's own performance tables, as the jobs that `launch import` reads.

Each row names the table, and the YAML or script that it names, at one commit; `args` is what `launch import` made of
that file (fields that decide memory and time), `backend_args` the arguments without a field. Added are the hardware,
and for scripts the vocabulary size of the public tokenizer that they name. Rows from which no job can be formed say why
(`excluded`); no row was left out for its error.

MindSpeed-LLM's CI baselines (most of models cut to a few layers, on a chip that is not stated) give the memory
allocated after a step, which is that of weights, gradients and optimizer, and a peak.

Atlas 800T A2 is counted as 910B3 (313 TFLOP/s), Atlas 900 A2 PoDc as 910B2 (376): MindFormers publishes five YAMLs on
both, and the second is 1.12 to 1.20 times as fast in four of them.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from launcher.compose import compose
from launcher.job import Job

STACKS = ("MindFormers", "MindSpeed-LLM")
GIB = 1024**3


def is_held_out(row: Mapping[str, Any]) -> bool:
    """Return whether no figure may be chosen on a row.

    A hash of its file and machine (or release) decides, a rule fixed before any row was judged.
    """
    ran = row["hw"] if row["source"].startswith(STACKS[0]) else row["source"].split(" ")[1]
    name = f"{row['config'].rpartition('/')[2]} {ran}"
    return int(hashlib.sha256(name.encode()).hexdigest(), 16) % 2 == 0


def is_row(row: Mapping[str, Any]) -> bool:
    """Return whether a row is one of these."""
    return "config" in row and row["source"].startswith(STACKS)


def case(row: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return source, name, job, and what was measured (bytes, seconds of a step); None: no job can be formed."""
    if "excluded" in row:
        return None
    job = compose(row["args"])
    if "backend_args" in row:
        job = replace(job, backend=replace(job.backend, args=row["backend_args"]))
    stack, found = row["source"].split(" ")[0], {"job": job, "name": f"{row['model']}, {row['hw']}"}
    if "allocated_after_step_gib" in row:
        return {**found, "source": f"{stack} CI, after a step", "states": row["allocated_after_step_gib"] * GIB}
    if "max_allocated_gib" in row:
        return {**found, "source": f"{stack} CI, peak", "memory": row["max_allocated_gib"] * GIB}
    kept = "held out" if is_held_out(row) else "not held out"
    return {**found, "source": f"{stack} tables, {kept}", "seconds": _seconds(job, row)}


def _seconds(job: Job, row: Mapping[str, Any]) -> float:
    sequences, length = job.batch.global_batch_size, job.batch.seq_length
    assert sequences is not None
    assert length is not None
    return float(sequences * length / (row["tokens_per_s_per_device"] * job.cluster.world_size))
