"""Composes the job of a MindFormers YAML that a command of Taylor names."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from launcher.cli.options import composed_of
from launcher.importing.imported import Imported
from launcher.job import Job, Value

# What a search of layouts reads of a YAML. The rest (data, callbacks, switches of one version, recomputation) is either
# searched or the same for all layouts; an old key among it would have every layout refused.
SEARCHED = (
    *("parallel.tp", "parallel.pp", "parallel.ep", "parallel.cp", "parallel.distributed_optimizer"),
    *("batch.micro_batch_size", "batch.global_batch_size", "batch.seq_length"),
    *("cluster.nodes", "cluster.devices_per_node", "name", "optimizer.lr", "data.paths", "data.format"),
)
_FIXED: Mapping[str, Value] = {"model.pretrained": False, "schedule.train_iters": 20}  # steps of a profile
_NOT_OF_MODEL = ("model.legacy", "model.label", "model.path", "model.pretrained", "model.perform_initialization")


def job_of_yaml(file: str | Path, overrides: Sequence[str], config_dirs: Sequence[str], *, search: bool = False) -> Job:
    """Compose the job that a configuration describes, with overrides.

    Args:
        search: only what a search of layouts reads: the model, batch and devices.

    Raises:
        ImportRefused: it cannot be read.
        ComposeError: the overrides do not fit.
    """
    from launcher.importing.job_file import job_yaml
    from launcher.importing.read_command import ImportOptions
    from launcher.importing.read_file import read_file
    from launcher.mapping.backend import get_backend

    (imported,) = read_file(file, ImportOptions())
    if search:
        imported = _searched(imported)
    newest = get_backend(imported.backend).default_version
    with tempfile.TemporaryDirectory(prefix="launch-") as folder:
        job = Path(folder, "job.yaml")
        job.write_text(job_yaml(imported, str(file), with_version=imported.version != newest), encoding="utf-8")
        return composed_of([f"+job={job}", *overrides], config_dirs)


def _searched(imported: Imported) -> Imported:
    from launcher.job import fields, value_at, with_values

    kept = [path for path in fields() if path in SEARCHED or path.startswith("model.")]
    values = {path: value_at(imported.job, path) for path in kept if path not in _NOT_OF_MODEL}
    fresh = replace(Job(), backend=replace(Job().backend, name=imported.job.backend.name))
    return replace(imported, job=with_values(fresh, {**values, **_FIXED}))
