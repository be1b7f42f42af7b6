"""Checks whether the target backend can build a model, and applies how it names layers."""

from __future__ import annotations

from dataclasses import replace

from launcher.convert.containers.errors import ConvertError
from launcher.convert.formats.format import Format, Layout
from launcher.job.model import Model
from launcher.mapping.backend import Backend, backend_names, get_backend


def for_backend(layout: Layout, name: str | None, model: Model) -> Layout:
    """Return a layout with the backend's choice for stacked layers.

    Args:
        layout: the requested layout.
        name: the backend, or None for no particular backend.
        model: the model to convert.

    Raises:
        ConvertError: the backend cannot build the model (`launch check` reports the same).
    """
    if name is None:
        return layout
    backend = get_backend(name)
    version = backend.version(layout.version)
    rows = backend.cannot_build(version, model)
    if rows:
        raise ConvertError(
            [
                f"{backend.title} {version} cannot build this model: {row.describe(model)} [{row.source}]; works:"
                f" {_others(model, backend)}"
                for row in rows
            ]
        )
    reason = _unconverted(backend, version, model)
    if reason:
        raise ConvertError(
            f"weights of {model.model_type} are not converted for {backend.title}: {reason}; works:"
            f" {_others(model, backend)}"
        )
    stack = layout.stack if backend.stacks_layers is None else backend.stacks_layers(model)
    return replace(layout, stack=stack)


def notes(target: Format, model: Model, stack: bool) -> tuple[str, ...]:
    """Return notes on backends that load the format but not this checkpoint, for a target without a backend.

    Args:
        target: the format.
        model: the model to convert.
        stack: whether all layers are stored as one tensor.
    """
    found = []
    for backend in map(get_backend, backend_names()):
        if backend.checkpoint_format is None or not backend.checkpoint_format.endswith(f".{target.name}"):
            continue
        rows = backend.cannot_build(backend.default_version, model)
        reason = _unconverted(backend, backend.default_version, model)
        if rows:
            found.append(f"{backend.title} cannot build this model: {rows[0].describe(model)}")
        elif reason:
            found.append(f"{backend.title} does not load this checkpoint: {reason}")
        elif backend.stacks_layers is not None and backend.stacks_layers(model) is not stack:
            found.append(
                f"{backend.title} names the layers of this model differently: write with --backend {backend.name}"
            )
    return tuple(found)


def _unconverted(backend: Backend, version: str, model: Model) -> str:
    row = backend.families().get(model.model_type or "")
    return row.unconverted(version) if row is not None else ""


def _others(model: Model, this: Backend) -> str:
    can = [
        f"--backend {backend.name}"
        for backend in map(get_backend, backend_names())
        if backend is not this
        and backend.checkpoint_format
        and not backend.cannot_build(backend.default_version, model)
        and not _unconverted(backend, backend.default_version, model)
    ]
    return " · ".join(can) or "another model"
