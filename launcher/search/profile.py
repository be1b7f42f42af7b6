"""Candidates shrunk to the available devices, so that one short run of each measures its layer times.

Stages are reduced first, then replicas, then layers. The computation and communication of a layer stay: its sizes,
tensor, context and expert parallelism, micro batch and switches. (The order is Taylor's: profile_prepare.py, e8d3573.)
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path

from launcher.balance.from_job import UNEVEN
from launcher.balance.profile import FURTHER, LAYOUT, PAIR, PEAK, TIMES, sizes_of
from launcher.estimate.estimate import CannotEstimate, estimate
from launcher.job import Job, Origin, Value, with_values
from launcher.job.transformer import within
from launcher.outputs.files import check_empty, write_output
from launcher.outputs.kinds import NEW
from launcher.pipeline import judge
from launcher.plan.shell import script
from launcher.records import dataclass
from launcher.runtime import planned

# Layers of a stage: one is recomputed (two where dense layers come first), the others are not.
_MOST_LAYERS, _FEWEST_LAYERS = 4, 2
_ITERATIONS, _FIRST_TRACED, _LAST_TRACED = 20, 10, 12
_ROUNDS = 4  # micro-batches per stage: enough for the pipeline to become steady


class CannotShrink(ValueError):
    """The layout cannot be profiled on these devices; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One candidate's profile: the file of its job, or why there is none (`file` is None then)."""

    name: str
    sizes: dict[str, int]
    file: Path | None
    what: str


def shrunk(job: Job, devices: int) -> Job:
    """Return a short job with the layers of this one on at most this many devices.

    Raises:
        CannotShrink: tensor, context and expert parallelism alone need more.
    """
    small = with_values(job, dict(_parallel(job, devices)))
    small = with_values(small, {**_training(small), **_surroundings(job)})
    most = job.model.num_hidden_layers or _MOST_LAYERS
    fitting = small
    for layers in range(min(_MOST_LAYERS, most), _FEWEST_LAYERS - 1, -1):
        fitting = with_values(small, _layers(small, layers), Origin(kind="derived", where="launch search"))
        if _fits(fitting):
            break
    return fitting


def _parallel(job: Job, devices: int) -> Iterator[tuple[str, Value]]:
    parallel, sizes = job.parallel, sizes_of(job)
    inner = parallel.tp * parallel.cp
    dp, experts = sizes["dp"], sizes["ep"] * sizes["etp"] if job.model.is_moe else 1
    # Expert parallelism limits how far dp can shrink: tp × cp × dp must be a multiple of ep × etp.
    few = next((n for n in range(1, dp + 1) if dp % n == 0 and inner * n % experts == 0), dp)
    stages = [n for n in range(parallel.pp, 0, -1) if parallel.pp % n == 0]
    whole = [n for n in range(dp, few - 1, -1) if dp % n == 0 and inner * n % experts == 0]
    # At least two stages, unless the devices suffice for the experts with one stage only.
    first = next((n for n in stages if n > 1 and inner * n * dp <= devices), min(parallel.pp, 2))
    pp, dp = next(((n, d) for n in (first, 1) for d in whole if inner * n * d <= devices), (0, 0))
    if not pp:
        raise CannotShrink(
            f"needs {inner * few} devices: tp {parallel.tp} × cp {parallel.cp} × dp {few}, which holds ep {sizes['ep']}"
        )
    world = inner * dp * pp
    node = min(job.cluster.devices_per_node, world)
    if world % node:
        raise CannotShrink(f"{world} devices are not a whole number of nodes of {node}")
    yield from UNEVEN.items()
    yield "parallel.pp", pp
    yield "parallel.vpp", None
    yield "parallel.microbatch_group_size", None
    yield "parallel.dp", None
    yield "cluster.nodes", world // node
    yield "cluster.devices_per_node", node
    yield "batch.global_batch_size", dp * job.batch.micro_batch_size * max(_ROUNDS * pp, 8)


def _layers(job: Job, layers: int) -> dict[str, Value]:
    """Return the values of a model with this many layers per stage, dense and MoE, recomputed and not."""
    pp, model = job.parallel.pp, job.model
    dense = min(model.first_k_dense_replace, 1 if pp == 1 else 2, layers - 1)
    return {
        "model.num_hidden_layers": layers * pp,
        "model.first_k_dense_replace": dense,
        "model.mlp_only_layers": within(model.mlp_only_layers, layers * pp),
        "model.full_attention_layers": within(model.full_attention_layers, layers * pp),
        "recompute.granularity": "full",
        "recompute.method": "block",
        # A single stage begins with its dense layer: the first layer with experts is recomputed as well.
        "recompute.num_layers": 2 if pp == 1 and dense and layers > 2 else 1,
        "recompute.modules": (),
        "recompute.layers_per_chunk": (),
        "recompute.selective_layers_per_chunk": (),
    }


def _training(job: Job) -> dict[str, Value]:
    values: dict[str, Value] = {
        "schedule.train_iters": _ITERATIONS,
        "schedule.epochs": None,
        "schedule.train_samples": None,
        "schedule.lr_decay_iters": None,
        "evaluation.iters": 0,
        "model.pretrained": False,
    }
    if job.schedule.lr_warmup_iters:
        values["schedule.lr_warmup_iters"] = 1
    return values


def _surroundings(job: Job) -> dict[str, Value]:
    return {
        "name": f"{job.name or 'job'}_{name_of(job)}",
        "checkpoint.load": None,
        "checkpoint.save": None,
        "checkpoint.save_interval": None,
        "profiler.enabled": True,
        "profiler.start_step": _FIRST_TRACED,
        "profiler.end_step": _LAST_TRACED,
    }


def _fits(job: Job) -> bool:
    try:
        return estimate(job, changes=False).fits is not False
    except CannotEstimate:
        return False


def name_of(job: Job) -> str:
    """Return the name of a candidate's files, in Taylor's form DP…_TP…_PP…_EP…, followed by CP, ETP and MBS."""
    sizes = sizes_of(job)
    name = "_".join(f"{size.upper()}{sizes[size]}" for size in LAYOUT)
    cp = [f"CP{job.parallel.cp}"] if job.parallel.cp > 1 else []
    etp = [f"ETP{sizes['etp']}"] if sizes["etp"] > 1 else []
    return "_".join([name, *cp, *etp, f"MBS{sizes['micro_batch_size']}"])


def emit(jobs: Sequence[Job], folder: Path, devices: int) -> list[Profile]:
    """Write the jobs to measure and `profile.csv` with a row to fill in for each; return what was written.

    Candidates with identical layers share one job: they differ only in values that do not affect the profile.

    Raises:
        OutputRefused: the folder is not empty and may contain a completed table.
        OSError: a file cannot be written.
    """
    check_empty(folder)
    folder.mkdir(parents=True, exist_ok=True)
    profiles: dict[str, Profile] = {}
    for job in jobs:
        name = name_of(job)
        if name not in profiles:
            profiles[name] = _emit(job, folder, name, devices)
    write_output(folder / "profile.csv", _table(list(profiles.values())), NEW)
    return list(profiles.values())


def _emit(job: Job, folder: Path, name: str, devices: int) -> Profile:
    sizes = sizes_of(job)
    try:
        small = shrunk(job, devices)
    except CannotShrink as error:
        return Profile(name=name, sizes=sizes, file=None, what=str(error))
    outcome = judge(small, fixes=False)
    errors = [finding for finding in outcome.findings if finding.severity == "error"]
    if errors:
        return Profile(name=name, sizes=sizes, file=None, what=f"{errors[0].rule}: {errors[0].message}")
    plan = planned(outcome)
    for file in plan.files:
        if Path(file.path).suffix in (".yaml", ".yml"):
            write_output(folder / f"{name}.yaml", file.content, NEW)
    write_output(folder / f"{name}.sh", script(plan), NEW)
    cluster = small.cluster
    shape = f"{cluster.world_size} devices, {_counted(small.parallel.pp, 'stage')} of {_per_stage(small)} layers"
    return Profile(name=name, sizes=sizes, file=folder / f"{name}.sh", what=shape)


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _per_stage(job: Job) -> int:
    return (job.model.num_hidden_layers or 0) // job.parallel.pp


def _table(profiles: Sequence[Profile]) -> str:
    """Return the table to fill in."""
    out = io.StringIO()
    columns = (*LAYOUT, *FURTHER, *TIMES, PEAK, *PAIR, "profile")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    for profile in profiles:
        if profile.file is not None:
            row = {name: str(size) for name, size in profile.sizes.items()} | {"profile": profile.file.name}
            writer.writerow([row.get(name, "") for name in columns])
    return out.getvalue()
