"""Lays the values of a model's own files (config.json, preset) under what a job says of the model."""

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

from launcher.job import Job, Origin, Value, build
from launcher.job.derive import with_fields
from launcher.job.determined import determined_fields
from launcher.job.model import Model


def filled(job: Job, known: Model, where: str, specified: Collection[str], unchanged: Collection[str] = ()) -> Job:
    """Return the job with the architecture of `known` wherever nothing else is specified.

    Fields that config.json does not determine stay as they are. Values that contradict `known` are recorded in
    `model.overridden`, and what they replace in their origin; so is what `known` replaces of a recipe or preset.

    Args:
        known: the model that its own file describes.
        where: that file, as the user would type it.
        specified: fields below `model` that the user, a recipe, a job file or a script states, dotted.
        unchanged: further fields that keep their values, without being a statement about the model.
    """
    values: dict[str, Value] = {}
    differing = list(job.model.overridden)
    origins = dict(job.origins)
    derived = Origin(kind="derived", where=where)
    for name in determined_fields():
        path, value = f"model.{name}", model_value(known, name)
        if name in specified:
            if model_value(job.model, name) != value:
                differing.append(name)
                origins[path] = dataclasses.replace(job.origin(path), replaced=f"{_shown(value)} in {where}")
        elif name not in unchanged:
            values[path] = value
            own, old = job.origin(path), model_value(job.model, name)
            replaced = f"{_shown(old)} in {own.where}" if own.kind == "recipe" and old != value else ""
            origins[path] = dataclasses.replace(derived, replaced=replaced)
    values["model.overridden"] = tuple(dict.fromkeys(differing))
    return dataclasses.replace(with_fields(job, values), origins=origins)


def model_of(values: Mapping[str, Any]) -> Model:
    """Return the `model` section of a mapping of its fields.

    Raises:
        ValueError: a name or value is wrong; one line for each.
    """
    job, problems = build({"model": dict(values)})
    if problems:
        raise ValueError("\n".join(f"{problem.path} {problem.message}" for problem in problems))
    return job.model


def model_value(model: Model, name: str) -> Any:
    """Return the value of a field below `model`, dotted."""
    node: Any = model
    for part in name.split("."):
        node = getattr(node, part)
    return node


def _shown(value: Any) -> str:
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
