"""Derives values of a composed job: the model from config.json, the name, the data parallel size."""

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from launcher.budgets import BeyondBudget
from launcher.compose import plain
from launcher.compose.errors import ComposeError, Mistake
from launcher.compose.hosts import with_hosts
from launcher.compose.yaml_lines import shown
from launcher.families import determined_fields
from launcher.job import Job, Origin, build, derive, value_at, with_values
from launcher.job.model import Model, RopeScaling
from launcher.job.secret import job_without_secrets

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


def resolve(job: Job, preset: Path | None, default_name: str | None) -> Job:
    """Return the job with everything that composition can derive.

    Raises:
        ComposeError: model.path, its config.json or the hosts cannot be used.
    """
    job = with_hosts(job_without_secrets(_at_home(job)))
    if job.model.path is not None:
        job = _with_config(job, Path(job.model.path).expanduser(), preset)
    elif job.model.hub_id is not None:
        job = _with_overridden(job, preset)
    if job.name is None:
        job = _named(job, default_name or job.model.model_type)
    return derive(job)


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


def _with_config(job: Job, folder: Path, preset: Path | None) -> Job:
    """Fill the model section from `folder`/config.json; explicit values override it (recorded in `overridden`)."""
    from launcher.families.config_json import read_config
    from launcher.families.source import ModelConfigError

    where = job.origin("model.path").where
    file = folder if folder.suffix == ".json" else folder / "config.json"
    if not file.is_file() and job.origin("model.path").kind == "recipe" and not folder.exists():
        # A job file written for another machine (`launch import`): its own architecture fields and the overrides apply.
        return _with_typed(job)
    if not file.is_file():
        raise ComposeError([Mistake(what=f"model.path: {file} does not exist", where=where, field="model.path")])
    try:
        read = read_config(file)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ComposeError([Mistake(what=f"model.path: {file} is not JSON: {error}", where=where)]) from None
    except BeyondBudget as error:
        raise ComposeError([Mistake(what=f"model.path: {error}", where=where, works=(error.works,))]) from None
    except ModelConfigError as error:
        raise ComposeError([Mistake(what=f"model.path: {error}", where=where)]) from None
    explicit = _explicit(job, preset)
    model = dataclasses.replace(_model_of(read), path=job.model.path, pretrained=job.model.pretrained)
    overridden = tuple(path for path, value in explicit.items() if _at(model, path) != value)
    model = dataclasses.replace(_replaced(model, explicit), overridden=overridden)
    origins = dict(job.origins)
    for path in determined_fields():
        if path not in explicit:
            origins.pop(f"model.{path}", None)
            if path.split(".")[0] in read:
                origins[f"model.{path}"] = Origin(kind="derived", where=shown(file))
    return dataclasses.replace(job, model=model, origins=origins)


def _with_overridden(job: Job, preset: Path | None) -> Job:
    """Record which architecture fields differ from the preset that hub_id belongs to."""
    if preset is None:
        return _with_typed(job)
    pristine = _model_of(_loaded(preset))
    if pristine.hub_id != job.model.hub_id:
        return job
    paths = determined_fields()
    overridden = tuple(path for path in paths if _at(job.model, path) != _at(pristine, path))
    return dataclasses.replace(job, model=dataclasses.replace(job.model, overridden=overridden))


def _with_typed(job: Job) -> Job:
    """Record which architecture fields the command line sets, if there are no model values to compare with."""
    typed = tuple(path for path in determined_fields() if job.origin(f"model.{path}").kind == "override")
    return dataclasses.replace(job, model=dataclasses.replace(job.model, overridden=typed)) if typed else job


def _loaded(preset: Path) -> dict[str, Any]:
    tree = plain.read(preset)
    if tree is not None:
        return tree
    from omegaconf import OmegaConf

    loaded = OmegaConf.to_container(OmegaConf.load(preset), resolve=True)
    return {str(key): value for key, value in loaded.items()} if isinstance(loaded, dict) else {}


def _explicit(job: Job, preset: Path | None) -> dict[str, Any]:
    """Return architecture fields that the user set on the command line or in a recipe, not those of the preset."""
    from_preset = shown(preset) if preset is not None else None
    explicit = {}
    for path in determined_fields():
        origin = job.origin(f"model.{path}")
        if origin.kind == "override" or (origin.kind == "recipe" and origin.where.rpartition(":")[0] != from_preset):
            explicit[path] = _at(job.model, path)
    return explicit


def _model_of(values: Mapping[str, Any]) -> Model:
    job, problems = build({"model": dict(values)})
    if problems:
        raise ComposeError([Mistake(what=f"{problem.path} {problem.message}") for problem in problems])
    return job.model


def _at(model: Model, path: str) -> Any:
    node: Any = model
    for part in path.split("."):
        node = getattr(node, part)
    return node


def _replaced(model: Model, values: Mapping[str, Any]) -> Model:
    top = {path: value for path, value in values.items() if "." not in path}
    rope = {path.split(".")[1]: value for path, value in values.items() if "." in path}
    scaling: RopeScaling = dataclasses.replace(model.rope_scaling, **rope)
    return dataclasses.replace(model, rope_scaling=scaling, **top)
