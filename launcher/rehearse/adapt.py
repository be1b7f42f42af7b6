"""Adapts a job to a rehearsal before translation, with a note for each change."""

from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from launcher.job import Job, Origin, Value, fields, output_dir, value_at, with_values
from launcher.job.finding import Finding
from launcher.job.rehearse import SWITCHES
from launcher.plan.executor import get_executor
from launcher.plan.start import RESUME
from launcher.rehearse.refusal import RehearsalRefused
from launcher.rehearse.shrink import shrink
from launcher.rules.passthrough import with_passthrough

REHEARSED = Origin(kind="derived", where="rehearsal")
# Directories that a rehearsal must not write to: a shrunken model must not end up in a production directory.
_WRITTEN = {"checkpoint.save": "checkpoints", "logging.tensorboard_dir": "tensorboard", "profiler.path": "profile"}


def adapted(job: Job, cores: int) -> tuple[Job, tuple[str, ...]]:
    """Return the job as it is rehearsed on this machine, and a note for every difference.

    Args:
        cores: processor cores of this machine.

    Raises:
        RehearsalRefused: the job has several nodes and no setting for rehearsing them on one machine.
    """
    job, notes = without(with_passthrough(job), job.rehearse.leave_out)
    if job.rehearse.shrink or job.rehearse.fake_world:
        # A fake world keeps the whole layout: one process simulates its ranks, so only sizes must shrink.
        small = shrink(job, cores=None if job.rehearse.fake_world else cores)
        job, notes = small.job, (*notes, *(f"shrunk: {line}" for line in small.report))
    elif job.cluster.nodes > 1 and get_executor(job.cluster.executor).one_machine:
        raise RehearsalRefused([_several_nodes(job)])
    changes = dict(_separate_paths(job))
    changed = {path: value for path, value in changes.items() if value != value_at(job, path)}
    shown = tuple(f"{path} {value_at(job, path)} → {value or 'not loaded'}" for path, value in changed.items())
    return with_values(job, changed, REHEARSED), (*notes, *shown)


def without(job: Job, switches: Iterable[str]) -> tuple[Job, tuple[str, ...]]:
    """Return the job without switches of SWITCHES, and a note for each that it has."""
    notes = []
    for name in switches:
        value = value_at(job, name)
        if value in (None, False):
            continue
        rest = (name, *SWITCHES[name].fields)
        job = with_values(job, {path: fields()[path].default for path in rest}, REHEARSED)
        notes.append(f"left out by rehearse.leave_out: {name}={value}; {SWITCHES[name].instead}")
    return job, tuple(notes)


def _separate_paths(job: Job) -> Iterator[tuple[str, Value]]:
    """Redirect the job's directories in a rehearsal, except those that the command line sets for this run."""
    smaller = job.rehearse.shrink or job.rehearse.fake_world
    folder = PurePosixPath(output_dir(job))
    for path, name in _WRITTEN.items():
        value = value_at(job, path)
        if value is None or PurePosixPath(value).is_relative_to(folder):
            continue
        if smaller or job.origin(path).kind != "override":
            yield path, str(folder / name)
    load = job.checkpoint.load
    here = job.origin("checkpoint.load").kind == "override" or (load is not None and Path(load).expanduser().is_dir())
    if load is not None and load != f"${{{RESUME}}}" and (smaller or (job.checkpoint.finetune and not here)):
        yield "checkpoint.load", None


def _several_nodes(job: Job) -> Finding:
    return Finding(
        rule="REHEARSE-NODES",
        severity="error",
        message=f"{job.cluster.nodes} nodes cannot be rehearsed on one machine as they are: cluster=ssh or "
        "cluster=slurm rehearse them on real nodes, rehearse.shrink=true scales the job down, "
        "rehearse.fake_world=true simulates single ranks of all",
        fields=("cluster.nodes",),
        source="launch",
    )
