"""Changing a job, and what follows from its other values: data parallel size, folder of the checkpoints."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from launcher.job.schema import Job, Origin, Value

_DEFAULT_ROOT = "launch_output"
_DERIVED = Origin(kind="derived")


def with_values(job: Job, values: Mapping[str, Value], origin: Origin | None = None) -> Job:
    """Return the job with other values at dotted paths, and with everything that is derived from them derived anew.

    Args:
        values: canonical path to value, already of the field's type.
        origin: recorded as the place where the values were set; None: the recorded places stay.
    """
    root: Any = job
    for path, value in values.items():
        root = _replace_at(root, path.split("."), value)
    assert isinstance(root, Job)
    origins = dict(job.origins)
    if origin is not None:
        origins.update(dict.fromkeys(values, origin))
    return derive(dataclasses.replace(root, origins=origins))


def _replace_at(node: Any, parts: list[str], value: Value) -> Any:
    if len(parts) == 1:
        return dataclasses.replace(node, **{parts[0]: value})
    return dataclasses.replace(node, **{parts[0]: _replace_at(getattr(node, parts[0]), parts[1:], value)})


def output_dir(job: Job) -> str:
    """Return the folder for what the launcher writes itself: as given, else `launch_output/<name>`."""
    return job.output_dir or f"{_DEFAULT_ROOT}/{job.name or 'job'}"


def derive(job: Job) -> Job:
    """Return the job with everything that follows from its other values, unless the user gave it.

    `parallel.dp` follows from the world size; `checkpoint.save` from the output folder, if a save interval asks for it.
    """
    if _is_open(job, "parallel.dp", job.parallel.dp):
        quotient, rest = divmod(job.cluster.world_size, job.parallel.tp * job.parallel.pp * job.parallel.cp)
        parallel = dataclasses.replace(job.parallel, dp=None if rest else quotient)
        job = dataclasses.replace(job, parallel=parallel, origins={**job.origins, "parallel.dp": _DERIVED})
    if job.checkpoint.save_interval is not None and _is_open(job, "checkpoint.save", job.checkpoint.save):
        checkpoint = dataclasses.replace(job.checkpoint, save=f"{output_dir(job)}/checkpoints")
        job = dataclasses.replace(job, checkpoint=checkpoint, origins={**job.origins, "checkpoint.save": _DERIVED})
    return job


def _is_open(job: Job, path: str, value: Value) -> bool:
    origin = job.origin(path)
    return origin.kind == "derived" or (value is None and origin.kind == "default")
