"""Builds a conversion from what a user asks for: folders, formats, the model, the layout of a job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from launcher.convert.asked import Asked, check_words
from launcher.convert.builds import for_backend, refuse_unread_format, refuse_without_loader
from launcher.convert.casts import dtype_named
from launcher.convert.containers.errors import ConvertError
from launcher.convert.conversion import Conversion
from launcher.convert.errors import WrongWord
from launcher.convert.formats import format_in, format_named, format_of_backend
from launcher.convert.formats.format import Format, Layout, layout_of
from launcher.convert.model import config_folder, has_config, model_in
from launcher.job import Job
from launcher.job.model import Model
from launcher.mapping.backend import UnknownBackend, backend_names

# Fields in which a job and the weights converted for it must agree.
_SHAPE = (
    "model_type",
    "num_hidden_layers",
    "hidden_size",
    "num_attention_heads",
    "num_key_value_heads",
    "intermediate_size",
    "vocab_size",
    "num_experts",
    "moe_intermediate_size",
    "kv_lora_rank",
)


@contextmanager
def request(asked: Asked) -> Iterator[Conversion]:
    """Yield the conversion that is asked for.

    Raises:
        ConvertError: a folder, a format or a model cannot be found.
        WrongWord: an option has no such value.
    """
    dtype = dtype_named(asked.dtype) if asked.dtype else None
    source = Path(asked.checkpoint or asked.model or "").expanduser()
    backend = asked.backend or (asked.job.backend.name if asked.job is not None else None)
    if asked.adapter or asked.checkpoint:
        # Imported here: most conversions are those of a model.
        from launcher.convert.request_adapter import adapter_conversion, adapter_source

        adapter = adapter_source(asked)
        if adapter is not None:
            layout, read_as = _layout(asked), _source_layout(asked)
            with adapter_conversion(asked, adapter, backend, layout, read_as) as conversion:
                yield conversion
            return
    own = _own_format(backend)
    target = format_named("hf") if asked.to_hf else _target(asked.format, backend, own)
    check_words(asked, target)
    source_format = format_in(source, preferred=own if asked.checkpoint else format_named("hf"))
    if asked.checkpoint is None and source_format.kind != "hf":
        raise ConvertError(f"--model {source} is a {source_format.title} checkpoint; works: mcore-to-hf, reshard")
    named = Path(asked.model).expanduser() if asked.model else None
    donor, model = _model([named, source], asked.job)
    layout, written_for = _layout(asked), backend if target.kind == "mcore" else None
    layout = for_backend(layout, written_for, model, form=asked.format)
    if written_for is None:
        refuse_without_loader(target, model, layout)
    elif asked.format is not None:
        refuse_unread_format(target, written_for, layout)
    yield Conversion(
        source=source,
        source_format=source_format,
        out=Path(asked.out).expanduser(),
        target_format=target,
        model=model,
        layout=layout,
        source_layout=_source_layout(asked),
        donor=donor,
        dtype=dtype,
        verify=asked.verify,
        overwrite=asked.overwrite,
        durable=asked.durable,
        workers=asked.workers,
        allow_overflow=asked.allow_overflow,
        fp8=asked.fp8 is not None,
        backend=written_for,
    )


def _model(folders: Sequence[Path | None], job: Job | None) -> tuple[Path | None, Model]:
    """Return the folder with config.json and the model it describes; where none has one, the model of the job.

    Raises:
        ConvertError: neither describes the model.
    """
    if job is not None and job.model.hidden_size is not None and not any(map(has_config, folders)):
        return None, job.model
    donor = config_folder(folders)
    model = model_in(donor)
    other = [
        name for name in _SHAPE if job is not None and getattr(job.model, name) not in (None, getattr(model, name))
    ]
    if job is not None and other:
        differences = ", ".join(f"{name} {getattr(job.model, name)} against {getattr(model, name)}" for name in other)
        raise ConvertError(
            f"the job's model differs from {donor / 'config.json'}: {differences}; works: the job of this model, or "
            "overrides of the layout alone (parallel.tp=2 …)"
        )
    return donor, model


def _own_format(backend: str | None) -> Format | None:
    if backend is None:
        return None
    try:
        return format_of_backend(backend)
    except UnknownBackend:
        raise WrongWord(f"--backend {backend}: no such backend; works: {', '.join(backend_names())}") from None


def _target(named: str | None, backend: str | None, own: Format | None) -> Format:
    if named is not None:
        return format_named(named)
    if own is not None:
        return own
    if backend is not None:
        raise ConvertError(f"the checkpoint format of {backend} is unknown; works: --format torch_dist")
    return format_named("torch_dist")


def _layout(asked: Asked) -> Layout:
    pairs = _pairs(asked.options)
    if asked.job is None:
        return Layout(naming=asked.layers, options=pairs)
    return layout_of(asked.job, naming=asked.layers, options=pairs)


def _source_layout(asked: Asked) -> Layout:
    return Layout() if asked.source_job is None else layout_of(asked.source_job)


def _pairs(words: Sequence[str]) -> dict[str, str]:
    wrong = next((word for word in words if not word.partition("=")[0] or "=" not in word), None)
    if wrong is not None:
        raise WrongWord(f"--set {wrong}: works: --set NAME=VALUE")
    return dict(word.split("=", 1) for word in words)
