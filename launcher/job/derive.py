"""Changes a job and updates its derived values: data parallel size, folder of the checkpoints."""

from collections.abc import Mapping
from typing import Any

from launcher.job.schema import Job, Origin, Value

_DEFAULT_ROOT = "launch_output"
_DERIVED = Origin(kind="derived")


def with_fields(job: Job, values: Mapping[str, Value]) -> Job:
    """Return the job with other values at dotted paths; derived values are not updated."""
    changed = _replaced(job, values)
    assert isinstance(changed, Job)
    return changed


def with_values(job: Job, values: Mapping[str, Value], origin: Origin | None = None) -> Job:
    """Return the job with other values at dotted paths, and update the values derived from them.

    Args:
        values: canonical path to value, already of the field's type.
        origin: recorded as the origin of the values; None: the recorded origins are kept.
    """
    changed = with_fields(job, values)
    if origin is not None:
        changed = _copied(changed, {"origins": {**job.origins, **dict.fromkeys(values, origin)}})
    return derive(changed)


def _replaced(node: Any, values: Mapping[str, Value]) -> Any:
    """Return the section with other values, itself if they are its own; passed-through arguments have any name."""
    if isinstance(node, Mapping):
        for path, value in values.items():
            node = _with_arg(node, tuple(path.split(".")), value)
        return node
    changes: dict[str, Any] = {}
    below: dict[str, dict[str, Value]] = {}
    for path, value in values.items():
        name, _, rest = path.partition(".")
        if rest:
            below.setdefault(name, {})[rest] = value
        elif not _same(getattr(node, name), value):
            changes[name] = value
    for name, inner in below.items():
        before = getattr(node, name)
        after = _replaced(before, inner)
        if after is not before:
            changes[name] = after
    return _copied(node, changes) if changes else node


def _same(one: Any, other: Any) -> bool:
    return one is other or (type(one) is type(other) and one == other)


def _copied(node: Any, changes: Mapping[str, Any]) -> Any:
    """Return a section with other values, as `dataclasses.replace` does; its __init__ is too slow for a search."""
    copy, set_ = object.__new__(type(node)), object.__setattr__
    for name in node.__dataclass_fields__:
        set_(copy, name, getattr(node, name))
    for name, value in changes.items():
        set_(copy, name, value)
    return copy


def _with_arg(tree: Mapping[str, Any], path: tuple[str, ...], value: Value) -> Mapping[str, Any]:
    first, *rest = path
    if rest and isinstance(tree.get(first), Mapping):
        return {**tree, first: _with_arg(tree[first], tuple(rest), value)}
    return {**tree, ".".join(path): value}


def output_dir(job: Job) -> str:
    """Return the launcher's output folder: as given, else `launch_output/<name>`."""
    return job.output_dir or f"{_DEFAULT_ROOT}/{job.name or 'job'}"


def derive(job: Job) -> Job:
    """Return the job with its derived values, unless the user set them.

    `parallel.dp` is derived from the world size; `checkpoint.save` from the output folder, if a save interval is set.
    """
    if _is_open(job, "parallel.dp", job.parallel.dp):
        quotient, rest = divmod(job.cluster.world_size, job.parallel.tp * job.parallel.pp * job.parallel.cp)
        job = _derived(job, "parallel", "dp", None if rest else quotient)
    if job.checkpoint.save_interval is not None and _is_open(job, "checkpoint.save", job.checkpoint.save):
        job = _derived(job, "checkpoint", "save", f"{output_dir(job)}/checkpoints")
    return job


def _derived(job: Job, section: str, name: str, value: Value) -> Job:
    path, before = f"{section}.{name}", getattr(job, section)
    if getattr(before, name) == value and job.origin(path) == _DERIVED:
        return job
    changes = {section: _copied(before, {name: value}), "origins": {**job.origins, path: _DERIVED}}
    changed: Job = _copied(job, changes)
    return changed


def _is_open(job: Job, path: str, value: Value) -> bool:
    origin = job.origin(path)
    return origin.kind == "derived" or (value is None and origin.kind == "default")
