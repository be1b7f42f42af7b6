"""Composes the job of a configuration that a command of Taylor names."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from launcher.importing.imported import Imported
from launcher.job import Job, Value

# What a search of layouts reads of a YAML. The rest (data, callbacks, switches of one version, lists of recomputed
# layers for each stage) is either searched or the same for all layouts.
SEARCHED = (
    *("parallel.tp", "parallel.pp", "parallel.vpp", "parallel.ep", "parallel.cp"),
    *("parallel.sequence_parallel", "parallel.distributed_optimizer"),
    *("batch.micro_batch_size", "batch.global_batch_size", "batch.seq_length", "graph.full_batch"),
    *("cluster.nodes", "cluster.devices_per_node", "name", "optimizer.lr", "data.paths", "data.format"),
)
_FIXED: Mapping[str, Value] = {"model.pretrained": False, "schedule.train_iters": 20}  # steps of a profile
_NOT_OF_MODEL = ("model.label", "model.path", "model.pretrained", "model.perform_initialization")


def job_of_yaml(file: str, overrides: Sequence[str], config_dirs: Sequence[str], *, search: bool = False) -> Job:
    """Compose the job that a configuration describes, with overrides.

    Args:
        search: only what a search of layouts reads: the model, batch and devices.

    Raises:
        ImportRefused: it cannot be read.
        ComposeError: the overrides do not fit.
    """
    from launcher.api import import_file
    from launcher.importing.overrides import job_with_overrides

    imported = import_file(file)
    return job_with_overrides(_searched(imported) if search else imported, file, overrides, config_dirs)


def _searched(imported: Imported) -> Imported:
    from launcher.job import fields, value_at, with_values

    kept = [path for path in fields() if path in SEARCHED or path.startswith("model.")]
    values = {path: value_at(imported.job, path) for path in kept if path not in _NOT_OF_MODEL}
    fresh = replace(Job(), backend=replace(Job().backend, name=imported.job.backend.name))
    return replace(imported, job=with_values(fresh, {**values, **_FIXED}))
