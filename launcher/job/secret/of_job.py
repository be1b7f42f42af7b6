"""Removes secrets from a job, for what composition, import and the Python API store, show and write."""

import dataclasses
import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any

from launcher.job.derive import with_fields
from launcher.job.schema import Job, Origin, fields, value_at
from launcher.job.secret.find import REDACTED, find
from launcher.job.secret.hide import without_secrets as hidden
from launcher.job.secret.refer import Variables, by_reference, in_bash, of_submission, unreferred

# Fields that the launcher, a queue or a cluster reads itself: references in them are not expanded.
_LAUNCHER_FIELDS = ("name", "output_dir", "runtime", "model.path", "backend.name", "backend.version")
_LAUNCHER_SECTIONS = ("cluster.", "hardware.", "rehearse.", "rules.", "search.", "estimate.")
_VARIABLES = ("backend.env", "imported.env")
_ARGUMENTS = ("backend.args", "imported.args")
_BASH, _SUBMISSION = "cluster.setup", "cluster.sbatch_options"


def job_without_secrets(job: Job) -> Job:
    """Return the job with secrets replaced by environment references, or by a placeholder where none is possible."""
    variables = Variables()
    changed: dict[str, Any] = {}
    for path in text_fields():
        value = value_at(job, path)
        if value:
            kept = _as_reference(path, value, variables)
            if kept != value:
                changed[path] = kept
    origins = _shown_origins(job)
    if not changed and origins is job.origins:
        return job
    return dataclasses.replace(with_fields(job, changed) if changed else job, origins=origins)


def redacted_fields(job: Job) -> tuple[str, ...]:
    """Return the fields in which a placeholder replaces a secret, because no process expands references there."""
    return tuple(
        path
        for path in text_fields()
        if path.startswith(_LAUNCHER_SECTIONS) or path in _LAUNCHER_FIELDS
        if _is_redacted(value_at(job, path))
    )


@cache
def text_fields() -> tuple[str, ...]:
    """Return the fields that hold text, alone or in lists and mappings; without those that have fixed choices."""
    return tuple(path for path, info in fields().items() if not info.meta.choices and _holds_text(info.type))


def _holds_text(kind: Any) -> bool:
    parts = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    return any(
        part is str
        or (typing.get_origin(part) is tuple and str in typing.get_args(part))
        or (isinstance(typing.get_origin(part), type) and issubclass(typing.get_origin(part), Mapping))
        for part in parts
    )


def _as_reference(path: str, value: Any, variables: Variables) -> Any:
    if path in _VARIABLES:
        return {
            unreferred(str(name)): by_reference(name, text, variables, is_variable=True) for name, text in value.items()
        }
    if path in _ARGUMENTS:
        return by_reference("", value, variables)
    if path == _BASH:
        text = "\n".join(value)
        return tuple(in_bash(text, variables).split("\n")) if find(text, code=True) else value
    if path == _SUBMISSION:
        return tuple(map(of_submission, value))
    if is_read_by_launcher(path):
        return _unreferred(value)
    return by_reference(path, value, variables, field=path)


def is_read_by_launcher(path: str) -> bool:
    """Return whether the launcher, a queue or a cluster reads a field as it is, without expanding references."""
    return path in _LAUNCHER_FIELDS or (path.startswith(_LAUNCHER_SECTIONS) and path not in (_BASH, _SUBMISSION))


def _unreferred(value: Any, name: str = "") -> Any:
    """Return a value with placeholders for secrets: a text, a list, or a mapping, whose names say what is secret."""
    if isinstance(value, Mapping):
        return {key: _unreferred(each, str(key)) for key, each in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(_unreferred(each, name) for each in value)
    return unreferred(value, name) if isinstance(value, str) else value


def _is_redacted(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_is_redacted, value.values()))
    return (
        REDACTED in value
        if isinstance(value, str)
        else isinstance(value, (tuple, list)) and any(map(_is_redacted, value))
    )


def _shown_origins(job: Job) -> Mapping[str, Origin]:
    """Return origins without secrets of the command line."""
    shown: dict[str, Origin] = {}
    for path, origin in job.origins.items():
        if origin.kind == "override":
            (where,) = hidden([origin.where])
            if where != origin.where:
                shown[path] = dataclasses.replace(origin, where=where)
    return {**job.origins, **shown} if shown else job.origins
