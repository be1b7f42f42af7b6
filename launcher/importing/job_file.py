"""The imported job as a YAML file for `+job=`: fields that differ from the defaults, and notes on the import."""

from collections.abc import Collection, Mapping
from typing import Any

from launcher.importing.imported import Imported
from launcher.importing.presets import PREDICTION, named_by_folder, preset_of, specified_model_fields, without_preset
from launcher.job import Job, Value, as_tree, fields, value_at
from launcher.job.file_text import job_file_text

# Computed whenever the job is composed.
_DERIVED = frozenset({"model.overridden", "model.newer_names", "parallel.dp", "backend.name"})


def job_tree(job: Job, stated: Collection[str] = ()) -> dict[str, Any]:
    """Return the fields of a job that differ from their defaults, nested by section.

    Args:
        stated: fields that are written in any case.
    """
    tree: dict[str, Any] = {}
    for path, info in fields().items():
        value = value_at(job, path)
        if (value in (info.default, None) and path not in stated) or path in _DERIVED:
            continue
        node = tree
        *sections, leaf = path.split(".")
        for section in sections:
            node = node.setdefault(section, {})
        node[leaf] = uninterpolated(value)
    if job.parallel.dp is not None and job.cluster.world_size != _ranks(job):
        tree.setdefault("parallel", {})["dp"] = job.parallel.dp
    return tree


def _ranks(job: Job) -> int:
    parallel = job.parallel
    return (parallel.dp or 1) * parallel.tp * parallel.pp * parallel.cp


def uninterpolated(value: Value) -> Value:
    """Return plain data without OmegaConf interpolations: `${X}` is escaped as `\\${X}`."""
    if isinstance(value, (tuple, list)):
        return [uninterpolated(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): uninterpolated(item) for key, item in value.items()}
    return value.replace("${", "\\${") if isinstance(value, str) else value


def whole_job_yaml(job: Job) -> str:
    """Return the text of a file with every field of a job, for `+job=FILE`."""
    tree = uninterpolated(as_tree(job))
    for path in ("parallel.dp", "checkpoint.save"):
        # Derived values are left out, so that they follow the edited file: null would say that there is none.
        if job.origin(path).kind == "derived":
            section, name = path.split(".")
            del tree[section][name]
    return job_file_text(tree)


def job_yaml(imported: Imported, source: str, *, with_version: bool) -> str:
    """Return the text of the job file.

    Args:
        source: input of the import, for the header of the file.
        with_version: pin the version; omitted if it is the default.
    """
    job = imported.job
    preset = preset_of(imported.job)
    named = preset is not None or job.model.path is not None
    # Where the model's own files fill the section, a default that the arguments state must be stated, too.
    specified = set(specified_model_fields(imported)) if named else set()
    if preset is not None and preset.fields.get(PREDICTION, 0):
        specified.add(PREDICTION)
    tree = job_tree(job, {f"model.{name}" for name in specified})
    if preset is not None:
        if job.model.path is not None:
            tree["model"]["hub_id"] = None  # the folder is the model's name, not the preset's
        without_preset(tree, preset)
    backend = tree.setdefault("backend", {})
    backend.pop("version", None)
    if with_version:
        tree["backend"] = {"version": imported.version, **backend}
    if not tree["backend"]:
        del tree["backend"]
    head = [
        f"# Imported from {source} ({imported.program or 'arguments'}, {imported.backend} {imported.version}).",
        *(f"# note: {note}" for note in (*imported.warnings, *named_by_folder(job))),
        *(f"# not imported: {note}" for note in imported.problems),
    ]
    if imported.exact:
        head.append(f"# also passed through, to reproduce the exact command: {', '.join(imported.exact)}")
    defaults = [{"override /backend": imported.backend}]
    if preset is not None:
        defaults.append({"override /model": preset.name})
    return "\n".join(line.replace("\n", " ") for line in head) + "\n" + job_file_text({"defaults": defaults, **tree})
