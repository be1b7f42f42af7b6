"""Checks whether the target backend can build a model, and applies how it names layers."""

from __future__ import annotations

from dataclasses import replace

from launcher.convert.containers.errors import ConvertError
from launcher.convert.formats import format_named, format_of_backend
from launcher.convert.formats.format import Format, Layout, Target
from launcher.convert.logical import logical_model
from launcher.job import Job, with_values
from launcher.job.model import Model
from launcher.mapping.backend import Backend, backend_names, get_backend


def for_backend(
    layout: Layout, name: str | None, model: Model, *, adapter: bool = False, form: str | None = None
) -> Layout:
    """Return a layout with the backend's choice for stacked layers.

    Args:
        layout: the requested layout.
        name: the backend, or None for no particular backend.
        model: the model to convert; `adapter`: an adapter of it.
        form: the format's name, where it is asked for.

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
                f" {other_backends(model, backend, layout, version, adapter=adapter, form=form)}"
                for row in rows
            ]
        )
    reason = _unconverted(backend, version, model)
    if reason:
        raise ConvertError(
            f"weights of {model.model_type} are not converted for {backend.title}: {reason}; works:"
            f" {other_backends(model, backend, layout, version, adapter=adapter, form=form)}"
        )
    stack = layout.stack if backend.stacks_layers is None else backend.stacks_layers(model)
    return replace(layout, stack=stack)


def refuse_unread_format(target: Format, name: str, layout: Layout) -> None:
    """Reject a format from which a backend's version cannot start.

    Raises:
        ConvertError: it loads others.
    """
    backend, own = get_backend(name), format_of_backend(name)
    version = backend.version(layout.version)
    if own is not None and not _loads(backend, version, target.name):
        raise ConvertError(
            f"--format {target.name}: {backend.title} {version} does not load it, and loads {own.title}; works:"
            f"{_without(backend, layout, target.name)}"
        )


def _loads(backend: Backend, version: str, form: str) -> bool:
    """Return whether a backend loads a format: its own one, or one that `checkpoint.format` selects."""
    if any(module.endswith(f".{form}") for module in (backend.checkpoint_format or "", *backend.also_loads)):
        return True
    from launcher.mapping.engine import translate  # many conversions need no translation

    path = "checkpoint.format"
    job = with_values(Job(), {path: format_named(form).checkpoint_format or form})
    return not any(path in finding.fields for finding in translate(job, backend, version).findings)


def refuse_without_loader(target: Format, model: Model, layout: Layout) -> None:
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
            f" {other_backends(model, None, layout, form=target.name)}"
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
        if not (backend.checkpoint_format or "").endswith(f".{target.name}"):
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


def other_backends(
    model: Model,
    this: Backend | None,
    layout: Layout,
    version: str | None = None,
    *,
    adapter: bool = False,
    form: str | None = None,
) -> str:
    """Return what loads a model's weights (and its adapters) in place of a backend (at a version), as options.

    Options of the layout and the format `form` that the other backend's format lacks are named.

    Tried: each plans the checkpoint of one process, which its format may refuse.
    """
    found = []
    if this is not None and version not in (None, this.default_version) and _writes(this, model):
        found.append(f"backend.version={this.default_version}")
    others = [backend for backend in map(get_backend, backend_names()) if backend is not this]
    if adapter:
        others = [backend for backend in others if backend.adapter_format is not None]
    found += [
        f"--backend {each.name}{'' if adapter else _without(each, layout, form)}"
        for each in others
        if _writes(each, model)
    ]
    return " · ".join(found) or "another model"


def _without(backend: Backend, layout: Layout, form: str | None) -> str:
    own = format_of_backend(backend.name)
    assert own is not None  # else it is not offered
    lacks = {
        "--format": form is not None and not _loads(backend, backend.default_version, form),
        "--set": bool({name.replace("-", "_") for name in layout.options} - set(own.options)),
        "--layers": layout.naming is not None and layout.naming not in own.layers,
    }
    left = [option for option, lacking in lacks.items() if lacking]
    return f" without {', '.join(left)}" if left else ""


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
