"""Derives values of a composed job: the model from its own files, the name, the data parallel size."""

import dataclasses
import os
from typing import Any

from launcher.compose.errors import VALUE, ComposeError, Mistake
from launcher.compose.model import ModelFiles, with_model
from launcher.job import Job, Origin, derive, value_at, with_values
from launcher.job.secret import job_without_secrets
from launcher.nearest import nearest
from launcher.plan.executor import UnknownExecutor, WrongOptions, executor_names, get_executor

# Fields that hold paths of this machine's file system.
PATHS = (
    "output_dir",
    "model.path",
    "tokenizer.path",
    "task.reference_model",
    "lora.load",
    "data.paths",
    "data.validation_paths",
    "data.cache_path",
    "checkpoint.save",
    "checkpoint.load",
    "logging.tensorboard_dir",
    "profiler.path",
)


def resolve(job: Job, files: ModelFiles, default_name: str | None) -> Job:
    """Return the job with everything that composition can derive.

    Raises:
        ComposeError: model.path, its config.json or the hosts cannot be used.
    """
    job = with_model(_with_machines(job_without_secrets(_at_home(job))), files)
    if job.name is None:
        job = _named(job, default_name or job.model.model_type)
    return derive(job)


def _with_machines(job: Job) -> Job:
    """Return the job with what its executor derives from its own options, such as the number of nodes."""
    name = job.cluster.executor
    try:
        return get_executor(name).completed(job)
    except UnknownExecutor:
        where, known = job.origin("cluster.executor").where, executor_names()
        works = tuple(f"cluster={each}" for each in nearest(name, known, cutoff=0.5) or known)
        what = f"cluster.executor {name!r} is not one of {', '.join(known)}"
        raise ComposeError(
            [Mistake(what=what, where=where, works=works, rule=VALUE, field="cluster.executor")]
        ) from None
    except WrongOptions as error:
        raise ComposeError(
            [Mistake(what=each.message, where=each.where, works=each.works) for each in error.mistakes]
        ) from None


def _at_home(job: Job) -> Job:
    """Expand a leading `~`, which no shell expands inside quotes; a directory named `~` is error-prone."""
    values: dict[str, Any] = {}
    for path in PATHS:
        value = value_at(job, path)
        if isinstance(value, tuple) and any(item.startswith("~") for item in value):
            values[path] = tuple(os.path.expanduser(item) for item in value)
        elif isinstance(value, str) and value.startswith("~"):
            values[path] = os.path.expanduser(value)
    return with_values(job, values) if values else job


def _named(job: Job, name: str | None) -> Job:
    return dataclasses.replace(job, name=name, origins={**job.origins, "name": Origin(kind="derived")})
