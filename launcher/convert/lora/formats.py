"""Adapter formats: PEFT's, and those that backends declare."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from launcher.convert.containers.errors import ConvertError
from launcher.convert.formats.format import Format
from launcher.convert.lora.logical import Shared
from launcher.convert.lora.peft import FORMAT as PEFT
from launcher.convert.unfinished import refuse_unfinished


def adapters_of(backend: str) -> tuple[Format, Shared] | None:
    """Return how a backend stores adapters, and which modules share one layer; None if it has no adapters."""
    from launcher.mapping.backend import get_backend

    module = get_backend(backend).adapter_format
    if module is None:
        return None
    loaded = import_module(module)
    found = loaded.FORMAT
    assert isinstance(found, Format)
    return found, getattr(loaded, "SHARED", ())


def reads_peft(backend: str) -> bool:
    """Return whether training on a backend starts from adapters in PEFT's format (`lora.load`)."""
    from launcher.mapping.backend import get_backend

    module = get_backend(backend).adapter_format
    return module is not None and bool(getattr(import_module(module), "READS_PEFT", False))


def in_checkpoint(backend: str) -> bool:
    """Return whether a backend starts adapters from the checkpoint of the weights, which holds the factors, too."""
    from launcher.mapping.backend import get_backend

    module = get_backend(backend).adapter_format
    return module is not None and bool(getattr(import_module(module), "IN_CHECKPOINT", False))


def scales_by_rank(backend: str | None) -> bool:
    """Return whether a backend always scales adapters by alpha / rank, without rsLoRA."""
    from launcher.mapping.backend import get_backend

    module = get_backend(backend).adapter_format if backend is not None else None
    return module is not None and bool(getattr(import_module(module), "BY_RANK", False))


def backend_of(form: Format) -> str | None:
    """Return the backend that stores adapters in a format; None if there is none."""
    from launcher.mapping.backend import backend_names

    found = ((name, adapters_of(name)) for name in backend_names())
    return next((name for name, known in found if known is not None and known[0].name == form.name), None)


def adapter_formats() -> tuple[Format, ...]:
    """Return PEFT's format and those of all backends."""
    from launcher.mapping.backend import backend_names

    return (PEFT, *(found[0] for found in map(adapters_of, backend_names()) if found is not None))


def adapter_in(path: Path, preferred: str | None = None) -> Format | None:
    """Return the format of the adapter in a folder; None if it holds none.

    Raises:
        ConvertError: a conversion has not finished the folder.
    """
    refuse_unfinished(path)
    own = adapters_of(preferred) if preferred is not None else None
    for found in (*([own[0]] if own else []), *adapter_formats()):
        if found.recognises(path):
            return found
    return None


def adapters_for(backend: str | None) -> tuple[Format, Shared]:
    """Return the adapter format of a backend; without a backend, that of the first one that has adapters.

    Raises:
        ConvertError: the backend has no adapter format.
    """
    from launcher.mapping.backend import backend_names

    having = [name for name in backend_names() if adapters_of(name) is not None]
    if backend is None:
        backend = having[0]
    found = adapters_of(backend)
    if found is None:
        raise ConvertError(f"the adapter format of {backend} is unknown; works: --backend {' | '.join(having)}")
    return found
