"""Registry of the built-in checkpoint formats; backends declare their own in their `Backend` record."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Final

from launcher.convert.containers.errors import ConvertError
from launcher.convert.errors import WrongWord
from launcher.convert.formats.format import Format
from launcher.convert.unfinished import refuse_unfinished

# Name to the module that defines its FORMAT.
MODULES: Final = {
    "hf": "launcher.convert.formats.huggingface",
    "torch_dist": "launcher.convert.formats.torch_dist",
    "legacy": "launcher.convert.formats.legacy",
}


def format_named(name: str) -> Format:
    """Return the format of that name.

    Raises:
        WrongWord: the name is unknown.
    """
    if name not in MODULES:
        raise WrongWord(f"--format {name}: works: {', '.join(MODULES)}")
    return _loaded(MODULES[name])


def format_of_backend(backend: str) -> Format | None:
    """Return the format that a backend loads; None if its record declares none."""
    from launcher.mapping.backend import get_backend

    module = get_backend(backend).checkpoint_format
    return None if module is None else _loaded(module)


def format_in(path: Path, preferred: Format | None = None) -> Format:
    """Return the format of the checkpoint in a folder.

    Raises:
        WrongWord: the folder does not exist.
        ConvertError: the folder holds no known checkpoint, or one that is not finished.
    """
    if not path.exists():
        raise WrongWord(f"{path}: no such folder")
    refuse_unfinished(path)
    if preferred and preferred.recognises(path):
        return preferred  # without importing the backends for their formats
    known = [*([preferred] if preferred else []), *formats_to_read()]
    for found in known:
        if found.recognises(path):
            return found
    titles = ", ".join(dict.fromkeys(found.title for found in known))
    raise ConvertError(f"{path}: no checkpoint there that can be read; known: {titles}")


def formats_to_read() -> list[Format]:
    """Return all model formats, in detection order."""
    return [*_of_backends(), *known_formats()]


def _of_backends() -> list[Format]:
    """Formats of backends: each recognises only its own checkpoints, so they are tried before the general formats."""
    from backends import BUILT_IN

    found = (format_of_backend(name) for name in BUILT_IN)
    return [form for form in found if form is not None]


def known_formats() -> tuple[Format, ...]:
    """Return the built-in formats."""
    return tuple(_loaded(module) for module in MODULES.values())


def _loaded(module: str) -> Format:
    found = import_module(module).FORMAT
    assert isinstance(found, Format)
    return found
