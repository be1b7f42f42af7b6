"""Checks whether the target backend can build a model, and applies how it names layers."""

from __future__ import annotations

from dataclasses import replace

from launcher.convert.containers.errors import ConvertError
from launcher.convert.formats import format_of_backend
from launcher.convert.formats.format import Format, Layout, Target
from launcher.convert.logical import logical_model
from launcher.job.model import Model
from launcher.mapping.backend import Backend, backend_names, get_backend


def for_backend(layout: Layout, name: str | None, model: Model, *, adapter: bool = False) -> Layout:
    """Return a layout with the backend's choice for stacked layers.

    Args:
        layout: the requested layout.
        name: the backend, or None for no particular backend.
        model: the model to convert; `adapter`: an adapter of it.

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
                f" {other_backends(model, backend, version, adapter=adapter)}"
                for row in rows
            ]
        )
    reason = _unconverted(backend, version, model)
    if reason:
        raise ConvertError(
            f"weights of {model.model_type} are not converted for {backend.title}: {reason}; works:"
            f" {other_backends(model, backend, version, adapter=adapter)}"
        )
    stack = layout.stack if backend.stacks_layers is None else backend.stacks_layers(model)
    return replace(layout, stack=stack)


def refuse_without_loader(target: Format, model: Model) -> None:
    """Reject a model in a format that some backends load beside their own, if none of them loads this model.

    Raises:
        ConvertError: none of them does; the reason of each.
    """
    loaders = [
        backend
        for backend in map(get_backend, backend_names())
        if any(module.endswith(f".{target.name}") for module in backend.also_loads)
    ]
    reasons = [reason for backend in loaders if (reason := _unloaded(backend, model))]
    if loaders and len(reasons) == len(loaders):
        raise ConvertError(
            f"{target.title}: nothing loads {model.model_type} in this format: {'; '.join(reasons)}; works:"
            f" {other_backends(model, None)}"
        )


def _unloaded(backend: Backend, model: Model) -> str:
    """Return why the newest known version of a backend does not load the weights of a model; empty if it does."""
    rows = backend.cannot_build(backend.default_version, model)
    if rows:
        return f"{backend.title} cannot build this model: {rows[0].describe(model)}"
    reason = _unconverted(backend, backend.default_version, model)
    return f"{backend.title} does not load this checkpoint: {reason}" if reason else ""


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
        reason = _unloaded(backend, model)
        if reason:
            found.append(reason)
        elif backend.stacks_layers is not None and backend.stacks_layers(model) is not stack:
            found.append(
                f"{backend.title} names the layers of this model differently: write with --backend {backend.name}"
            )
    return tuple(found)


def _unconverted(backend: Backend, version: str, model: Model) -> str:
    row = backend.families().get(model.model_type or "")
    return row.unconverted(version) if row is not None else ""


def other_backends(model: Model, this: Backend | None, version: str | None = None, *, adapter: bool = False) -> str:
    """Return what loads a model's weights (and its adapters) in place of a backend (at a version), as options.

    Tried: each plans the checkpoint of one process, which its format may refuse.
    """
    found = []
    if this is not None and version not in (None, this.default_version) and _writes(this, model):
        found.append(f"backend.version={this.default_version}")
    others = [backend for backend in map(get_backend, backend_names()) if backend is not this]
    if adapter:
        others = [backend for backend in others if backend.adapter_format is not None]
    found += [f"--backend {backend.name}" for backend in others if _writes(backend, model)]
    return " · ".join(found) or "another model"


def _writes(backend: Backend, model: Model) -> bool:
    own, row = format_of_backend(backend.name), backend.families().get(model.model_type or "")
    is_trained = row is None or row.trains(backend.default_version)
    if own is None or not is_trained or _unloaded(backend, model):
        return False
    logical = logical_model(model)
    try:
        own.draft(Target(logical=logical, dtypes=dict.fromkeys(logical.tensors, "BF16"), layout=Layout()))
    except ConvertError:
        return False
    return True
