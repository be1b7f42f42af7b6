"""Shipped presets of the config group `model`, found by the name of a model on a hub."""

import re
from collections.abc import Mapping
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import Any

from launcher.compose.variants import VARIANTS, Variant
from launcher.job import Job
from launcher.job.derive import with_fields
from launcher.job.shipped import shipped
from launcher.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A model of the shipped config group `model`.

    Attributes:
        name: option of the group.
        fields: its fields below `model`.
        differs: those of `fields` that are not the option's own: the model is a variant of it.
    """

    name: str
    fields: Mapping[str, Any]
    differs: Mapping[str, Any] = field(default_factory=dict)


@cache
def _presets() -> Mapping[str, Path]:
    """Return the shipped presets by hub id, read from their `hub_id` line."""
    found: dict[str, Path] = {}
    for path in sorted(shipped("conf").joinpath("model").glob("*.yaml")):
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("hub_id:"):
                found.setdefault(line.partition(":")[2].strip(), path)
                break
    return found


def preset_named(name: str) -> Preset | None:
    """Return the preset of exactly this model, or None.

    Args:
        name: name on a hub; copies under another owner, and names without one, are the same model.

    >>> preset_named("Qwen/Qwen3-30B-A3B-Instruct-2507").differs["rope_theta"]
    10000000.0
    """
    leaf = name.rstrip("/").rsplit("/", 1)[-1].lower() if name.count("/") <= 1 else ""
    hub_id, path, variant = _known().get(leaf, ("", None, None))
    if path is None:
        return None
    own = _read(path)
    named = name if "/" in name else hub_id
    changed = {key: _merged(own.fields.get(key), value) for key, value in (variant.differs if variant else {}).items()}
    if named != own.fields["hub_id"]:
        changed = {"hub_id": named, **changed}
    return Preset(name=own.name, fields={**own.fields, **changed}, differs=changed)


def preset_of_folder(path: str) -> Preset | None:
    """Return the preset of the model that a folder is named after, or None.

    The caches of huggingface_hub (`models--ORG--NAME/snapshots/HASH`) and of ModelScope (`___` for a dot) name the
    model, too; `-hf` tells the format of the weights.

    >>> preset_of_folder("/data/Qwen3-8B").fields["hub_id"]
    'Qwen/Qwen3-8B'
    """
    parts = path.rstrip("/").split("/")
    if parts[-2:-1] == ["snapshots"]:
        parts = parts[:-2]
    leaf = parts[-1].rsplit("--", 1)[-1].replace("___", ".") if parts else ""
    return preset_named(leaf) or preset_named(leaf.removesuffix("-hf"))


def is_port(job: Job) -> bool:
    """Return whether the job was written for another backend than it is to run on."""
    return job.imported.backend not in (None, job.backend.name)


@cache
def _known() -> Mapping[str, tuple[str, Path, Variant | None]]:
    """Return hub id, file and variant of every known model by its name without the owner, in lower case."""
    found: dict[str, tuple[str, Path, Variant | None]] = {}
    for hub_id, path in _presets().items():
        found[hub_id.rsplit("/", 1)[-1].lower()] = (hub_id, path, None)
    files = {path.stem: path for path in _presets().values()}
    for variant in VARIANTS:
        for hub_id in variant.hub_ids:
            found.setdefault(hub_id.rsplit("/", 1)[-1].lower(), (hub_id, files[variant.preset], variant))
    return found


def _merged(own: Any, value: Any) -> Any:
    return {**own, **value} if isinstance(own, Mapping) and isinstance(value, Mapping) else value


_CONVERTED = "-mcore"


def with_model_of_checkpoint(job: Job) -> tuple[Job, str]:
    """Return the job with the model that the folder of its checkpoint names, and that name; empty: it names none.

    ms-swift reads the architecture from the checkpoint, which its examples call `NAME-mcore`: another backend needs it.
    """
    folder = (job.checkpoint.load or "").rstrip("/").rsplit("/", 1)[-1]
    name = folder.removesuffix(_CONVERTED)
    if name == folder or job.model.path or job.model.hub_id or job.model.hidden_size is not None:
        return job, ""
    preset = preset_named(name)
    if preset is None:
        return job, ""
    hub_id = str(preset.fields["hub_id"])
    return with_fields(job, {"model.hub_id": hub_id}), hub_id


# Parts of a name that do not change the sizes: further training, storage format.
_SUFFIXES = re.compile(r"^meta-|(-(base|instruct|it|pt|thinking|chat|hf|fp8|bf16|\d{4}|mcore))+$")


def named_like(name: str) -> Preset | None:
    """Return the preset of the same name, ignoring suffixes for training and storage format; None: there is none.

    >>> named_like("Qwen/Qwen3-30B-A3B-Instruct-2507").name
    'qwen3_30b_a3b'
    """
    exact = preset_named(name)
    if exact is not None:
        return exact
    wanted = _stem(name)
    found = [path for hub_id, path in _presets().items() if _stem(hub_id) == wanted] if wanted else []
    return _read(found[0]) if found else None


def _stem(name: str) -> str:
    return _SUFFIXES.sub("", name.rstrip("/").rsplit("/", 1)[-1].lower())


@cache
def _read(path: Path) -> Preset:
    import yaml

    return Preset(name=path.stem, fields=yaml.safe_load(path.read_text(encoding="utf-8")))
