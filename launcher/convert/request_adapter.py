"""Builds the conversion of a LoRA adapter, where one is named or found."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from launcher.convert.asked import Asked, check_words
from launcher.convert.builds import for_backend
from launcher.convert.casts import dtype_named
from launcher.convert.containers.errors import ConvertError
from launcher.convert.conversion import Conversion
from launcher.convert.convert import refuse_overlap
from launcher.convert.errors import WrongWord
from launcher.convert.formats.format import Format, Layout
from launcher.convert.logical import logical_model
from launcher.convert.lora.formats import adapter_in, adapters_for, backend_of, scales_by_rank
from launcher.convert.lora.logical import Shared
from launcher.convert.lora.peft import FORMAT as PEFT
from launcher.convert.lora.peft import peft_format
from launcher.convert.lora.rewrite import check_or_rewrite
from launcher.convert.model import config_folder, model_in


def adapter_source(asked: Asked) -> tuple[Path, Format] | None:
    """Return the adapter that is to be converted and its format; None where none is named or found.

    Raises:
        ConvertError: `--adapter` names a folder without one.
    """
    named, checkpoint = asked.adapter, asked.checkpoint
    path = Path(named or checkpoint or "").expanduser()
    if named is None and checkpoint is None:
        return None
    found = adapter_in(path, asked.backend)
    if found is None and named is not None:
        wrong = ConvertError if path.exists() else WrongWord
        raise wrong(f"--adapter {path}: no adapter there; works: a folder with adapter_config.json")
    return None if found is None else (path, found)


@contextmanager
def adapter_conversion(
    asked: Asked, source: tuple[Path, Format], backend: str | None, layout: Layout, read_as: Layout
) -> Iterator[Conversion]:
    """Yield the conversion that the options define; a rewritten adapter is kept next to `--out` meanwhile.

    Raises:
        ConvertError: the adapter cannot be converted as it is, and `--rewrite` is not given; or an option applies to
            models only.
    """
    path, form = source
    _refuse_options_of_models(asked, path)
    to_peft = asked.to_hf
    target, shared = (PEFT, ()) if to_peft else _target(form, backend)
    check_words(asked, target, form)
    if form.name == PEFT.name:
        form = peft_format(shared)
    named = Path(asked.model).expanduser() if asked.model else None
    donor = config_folder([named, path, form.config(path)])
    model, out = model_in(donor), Path(asked.out).expanduser()
    if not to_peft:
        layout = for_backend(layout, backend_of(target), model, adapter=True)
    conversion = Conversion(
        source=path,
        source_format=form,
        out=out,
        target_format=target,
        model=model,
        layout=layout,
        source_layout=replace(read_as, options=layout.options),
        donor=donor,
        dtype=dtype_named(asked.dtype) if asked.dtype else None,
        verify=asked.verify,
        overwrite=asked.overwrite,
        durable=asked.durable,
        workers=asked.workers,
        allow_overflow=asked.allow_overflow,
    )
    if form.name != PEFT.name or to_peft:
        yield conversion
        return
    refuse_overlap(out, {"the checkpoint that is read": path, "--model": donor})
    rewrite = None
    if asked.rewrite:
        parent = Path(tempfile.gettempdir()) if asked.dry_run else out.absolute().parent
        rewrite = parent / f"{out.name}.rewritten"
    by_rank = scales_by_rank(backend_of(target))
    with check_or_rewrite(path, logical_model(model), rewrite, shared=shared, by_rank=by_rank) as folder:
        if folder != path:
            asked.warn(f"{path}: written as an equal adapter (--rewrite)")
        yield replace(conversion, source=folder)


def _refuse_options_of_models(asked: Asked, path: Path) -> None:
    if asked.format is not None:
        raise ConvertError(
            f"--format {asked.format}: {path} is an adapter, which is written as a training stack stores adapters;"
            " works: --backend NAME; mcore-to-hf for PEFT's format"
        )
    if asked.fp8 is not None:
        raise ConvertError(f"--fp8: {path} is an adapter, and only models are stored in FP8; works: without --fp8")


def _target(form: Format, backend: str | None) -> tuple[Format, Shared]:
    """Return the format to write: the backend's; without one, that of the source if a training stack wrote it."""
    return (form, ()) if backend is None and form.name != PEFT.name else adapters_for(backend)
