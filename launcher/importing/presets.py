"""Architecture of models that a script only names: from a folder's config.json or the preset of that name."""

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from launcher.budgets import BeyondBudget
from launcher.compose.search_path import shipped
from launcher.families import ModelConfigError, read_config
from launcher.job import Job, Origin, build


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A model of the shipped config group `model`: its option name and its fields."""

    name: str
    fields: Mapping[str, Any]


@cache
def _presets() -> Mapping[str, Path]:
    """Return the shipped presets by hub id, read from their `hub_id` line."""
    found: dict[str, Path] = {}
    for path in sorted(Path(shipped("conf")).joinpath("model").glob("*.yaml")):
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("hub_id:"):
                found.setdefault(line.partition(":")[2].strip(), path)
                break
    return found


def preset_of(job: Job) -> Preset | None:
    """Return the preset of the model that the job names by its hub id, unless the job describes an architecture."""
    path = _presets().get(job.model.hub_id or "")
    if path is None or job.model.path is not None:
        return None
    preset, known = _read(path), job.model.hidden_size
    return None if known is not None and known != preset.fields.get("hidden_size") else preset


# Parts of a name that do not change the sizes: further training, storage format.
_SUFFIXES = re.compile(r"^meta-|(-(base|instruct|thinking|chat|hf|fp8|bf16|\d{4}|mcore))+$")


def named_like(name: str) -> Preset | None:
    """Return the preset of the same name, ignoring suffixes for training and storage format; None: there is none.

    >>> named_like("Qwen/Qwen3-30B-A3B-Instruct-2507").name
    'qwen3_30b_a3b'
    """
    wanted = _stem(name)
    found = [path for hub_id, path in _presets().items() if _stem(hub_id) == wanted]
    return _read(found[0]) if wanted and found else None


def _stem(name: str) -> str:
    return _SUFFIXES.sub("", name.rstrip("/").rsplit("/", 1)[-1].lower())


def _read(path: Path) -> Preset:
    import yaml

    return Preset(name=path.stem, fields=yaml.safe_load(path.read_text(encoding="utf-8")))


def with_known_model(job: Job) -> tuple[Job, str]:
    """Return a job with the architecture of its model's config.json or preset, and why the file cannot be read.

    The number of multi-token prediction layers stays as in the script: backends read it from an argument.
    """
    if job.model.hidden_size is not None:
        return job, ""
    file = Path(job.model.path or "").expanduser() / "config.json"
    if job.model.path is None or not file.is_file():
        preset = preset_of(job)
        where = "" if preset is None else f"conf/model/{preset.name}.yaml"
    else:
        try:
            preset, where = Preset(name=str(file), fields=read_config(file)), str(file)
        except (OSError, ValueError, BeyondBudget, ModelConfigError) as error:
            return job, f"{file}: {error}"
    if preset is None:
        return job, ""
    known = with_preset(job, preset)
    model = dataclasses.replace(known.model, num_nextn_predict_layers=job.model.num_nextn_predict_layers)
    paths = (f"model.{name}" for name in preset.fields if getattr(model, name) != getattr(job.model, name))
    origins = {**dict.fromkeys(paths, Origin(kind="derived", where=where)), **job.origins}
    return dataclasses.replace(job, model=model, origins=origins), ""


def with_preset(job: Job, preset: Preset | None = None) -> Job:
    """Return the job with the architecture of a preset; default: the preset that the job names, if any."""
    preset = preset or preset_of(job)
    if preset is None or job.model.hidden_size is not None:
        return job
    filled, _ = build({"model": dict(preset.fields)})
    default = type(job.model)()
    own = {
        field.name: getattr(job.model, field.name)
        for field in dataclasses.fields(job.model)
        if getattr(job.model, field.name) != getattr(default, field.name)
    }
    return dataclasses.replace(job, model=dataclasses.replace(filled.model, **own))


def without_preset(tree: dict[str, Any], preset: Preset) -> None:
    """Remove the values of the preset from a job's tree."""
    model = tree.get("model", {})
    for name, value in preset.fields.items():
        if model.get(name) == value:
            del model[name]
    if not model:
        tree.pop("model", None)
