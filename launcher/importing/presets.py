"""Architecture of models that a script only names: from a folder's config.json or the preset of that name."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from launcher.budgets import BeyondBudget
from launcher.compose.presets import Preset, is_port, preset_named, preset_of_folder
from launcher.families.config_json import read_config
from launcher.families.config_names import with_config_names
from launcher.families.fill import filled, model_of, model_value
from launcher.families.source import ModelConfigError
from launcher.families.tokenizer_files import with_tokenizer_files
from launcher.importing.imported import Imported
from launcher.importing.notes import Note
from launcher.job import Job
from launcher.job.derive import with_fields
from launcher.job.determined import determined_fields
from launcher.job.model import Model

# Backends read the number of these layers from an argument, not from config.json.
PREDICTION = "num_nextn_predict_layers"
_DEFAULT = Model()
# The `model` sections of the presets that were needed, by the model's name.
_MODELS: dict[str, Model] = {}


def preset_of(job: Job) -> Preset | None:
    """Return the preset of the model that the job names, unless the job describes an architecture.

    It is named by its hub id; in a port also by a folder that is not on this machine: the script's own backend reads
    that folder where the job runs.
    """
    model, known = job.model, job.model.hidden_size
    if model.path is not None:
        named = is_port(job) and not Path(model.path).expanduser().exists()
        preset = preset_of_folder(model.path) if named else None
    else:
        preset = preset_named(model.hub_id) if model.hub_id is not None else None
    return None if preset is None or known not in (None, preset.fields.get("hidden_size")) else preset


def named_by_folder(job: Job) -> tuple[Note, ...]:
    """Return what says that the sizes come from the name of a folder that is not on this machine."""
    preset = preset_of(job)
    if preset is None or job.model.path is None:
        return ()
    message = f"the sizes are those of {preset.fields['hub_id']}, by the name of model.path={job.model.path}, which is "
    return (Note(message=f"{message}not on this machine", works=("model.path=DIR with its config.json",)),)


def specified_model_fields(imported: Imported) -> frozenset[str]:
    """Return the fields below `model` that the arguments of an input state, dotted."""
    paths = {path for each in imported.mapped_args for path in each.fields}
    return frozenset(name for name in determined_fields() if f"model.{name}" in paths)


def with_known_model(imported: Imported) -> tuple[Job, str]:
    """Return the job with what the files of its model and tokenizer say, and why config.json cannot be read.

    The architecture is that of config.json or of a preset. What the arguments state is kept, and the number of
    multi-token prediction layers.
    """
    job, unreadable = _with_architecture(imported)
    return with_config_names(with_tokenizer_files(job)), unreadable


def _with_architecture(imported: Imported) -> tuple[Job, str]:
    job = imported.job
    if job.model.hidden_size is not None:
        return job, ""
    specified = specified_model_fields(imported)
    file = Path(job.model.path or "").expanduser() / "config.json"
    if job.model.path is None or not file.is_file():
        preset = preset_of(job)
        return (job, "") if preset is None else (_with_fields(job, preset, specified, {*_kept(job), PREDICTION}), "")
    try:
        known = model_of(read_config(file))
    except (OSError, ValueError, BeyondBudget, ModelConfigError) as error:
        return job, f"{file}: {error}"
    return filled(job, known, str(file), specified, {*_kept(job), PREDICTION}), ""


def with_preset(job: Job, preset: Preset | None = None) -> Job:
    """Return the job with the architecture of a preset; default: the preset that the job names, if any.

    The number of multi-token prediction layers is the job's, a value of its own as in a job file.
    """
    preset = preset or preset_of(job)
    if preset is None or job.model.hidden_size is not None:
        return job
    known = _with_fields(job, preset, (), {*_kept(job), PREDICTION})
    own = () if job.model.num_nextn_predict_layers == preset.fields.get(PREDICTION, 0) else (PREDICTION,)
    return with_fields(known, {"model.overridden": (*known.model.overridden, *own)})


def _with_fields(job: Job, preset: Preset, specified: Collection[str], unchanged: Collection[str]) -> Job:
    key = str(preset.fields.get("hub_id", preset.name))
    if key not in _MODELS:
        _MODELS[key] = model_of(preset.fields)
    named = f", by the name of {job.model.path}" if job.model.path is not None else ""
    return filled(job, _MODELS[key], f"conf/model/{preset.name}.yaml{named}", specified, unchanged)


def _kept(job: Job) -> set[str]:
    return {name for name in determined_fields() if model_value(job.model, name) != model_value(_DEFAULT, name)}


def without_preset(tree: dict[str, Any], preset: Preset) -> None:
    """Remove the values of the preset from a job's tree; those in which a variant of it differs are written."""
    model = tree.get("model", {})
    for name, value in preset.fields.items():
        if model.get(name) == value:
            del model[name]
    for name, value in preset.differs.items():
        model.setdefault(name, value)
    if not model:
        tree.pop("model", None)
