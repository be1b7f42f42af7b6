"""Checks that a folder to `--overwrite` holds only a previous conversion or a checkpoint."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from launcher.convert.containers.errors import ConvertError
from launcher.convert.containers.files import read_exactly
from launcher.convert.containers.tracker import TRACKER
from launcher.convert.formats import formats_to_read
from launcher.convert.formats.format import Format
from launcher.outputs.contents import Contents, Known, contents_of, first_entries

REPORT: Final = "conversion.json"
# Tensor files are recorded by size only, since reading them again takes as long as the conversion.
_TENSORS = (".safetensors", ".distcp", ".pt", ".ckpt")
_LARGEST_JSON = 1 << 28
# Required fields of a conversion's or a merge's record, with their types.
_RECORDS: Final[tuple[Mapping[str, type], ...]] = (
    {"source": str, "source_format": str, "target": str, "target_format": str, "bytes_written": int},
    {"model": str, "adapter": str, "out": str, "tensors": int, "bytes": int},
)


def files_written(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the file records for `conversion.json`: size, and SHA-256 of files that users may edit."""
    found = {}
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder).as_posix()
        if path.is_file() and relative != REPORT:
            found[relative] = _recorded(path)
    return found


def checkpoint_contents(folder: Path) -> Contents:
    """Return the content of a folder, and entries that are neither recorded output nor part of a checkpoint."""
    record = _record(folder)
    formats = [form for form in _formats() if _recognised(form, folder)]
    listed: dict[str, Callable[[Path], bool]] = {}
    if record is not None:
        listed = {name: partial(_same, recorded) for name, recorded in record.get("files", {}).items()}
        listed[REPORT] = lambda path: True
    patterns = tuple(dict.fromkeys(pattern for form in formats for pattern in form.holds))
    if record is not None:
        kind = f"what was converted from {record.get('source', record.get('model'))}"
    elif formats:
        kind = f"a {formats[0].title} checkpoint"
    else:
        return Contents(foreign=first_entries(folder))
    return contents_of(folder, kind, Known(patterns=patterns, listed=listed, valid=_valid))


def _formats() -> Iterator[Format]:
    from launcher.convert.lora.formats import adapter_formats  # needed where a folder is replaced

    yield from adapter_formats()
    yield from formats_to_read()


def _recognised(form: Format, folder: Path) -> bool:
    if any(not (folder / name).is_file() for name in form.requires):
        return False
    try:
        return bool(form.holds) and form.recognises(folder)
    except (ConvertError, OSError, ValueError):
        return False


def _record(folder: Path) -> Mapping[str, Any] | None:
    """Return the record of a conversion, if there is a complete one."""
    path = folder / REPORT
    tree = None if path.is_symlink() or not path.is_file() else _json(path)
    if not isinstance(tree, dict) or not any(_matches_types(tree, wanted) for wanted in _RECORDS):
        return None
    files = tree.get("files", {})
    whole = isinstance(files, dict) and all(isinstance(recorded, dict) for recorded in files.values())
    return tree if whole else None


def _matches_types(tree: Mapping[str, Any], wanted: Mapping[str, type]) -> bool:
    return all(type(tree.get(name)) is kind for name, kind in wanted.items())


def _recorded(path: Path) -> dict[str, Any]:
    recorded: dict[str, Any] = {"bytes": path.stat().st_size}
    if path.suffix not in _TENSORS:
        recorded["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    return recorded


def _same(recorded: Mapping[str, Any], path: Path) -> bool:
    try:
        return path.is_file() and path.stat().st_size == recorded.get("bytes") and _recorded(path) == recorded
    except OSError:
        return False


# --- whether the content of a file matches its name ---


def _valid(path: Path) -> bool:
    check = _CHECKS.get(path.suffix) or _CHECKS.get(path.name)
    try:
        return check is None or path.stat().st_size == 0 or check(path)
    except OSError:
        return False


def _json(path: Path) -> Any:
    """Return the content of a JSON file; None if it is invalid or too large."""
    try:
        return json.loads(path.read_bytes()) if path.stat().st_size <= _LARGEST_JSON else None
    except (OSError, ValueError, RecursionError):
        return None


def _is_object(path: Path) -> bool:
    return isinstance(_json(path), (dict, list))


def _is_safetensors(path: Path) -> bool:
    """Return whether a file begins with a safetensors header: its length, then JSON."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= path.stat().st_size - 8:
            return False
        try:
            header = read_exactly(file.fileno(), path, 8, length, "header")
            return isinstance(json.loads(header), dict)
        except (ConvertError, ValueError, RecursionError):
            return False


def _is_torch(path: Path) -> bool:
    """Return whether a file begins like torch.save output: a zip archive, or a pickle of protocol 2 or later."""
    with path.open("rb") as file:
        return file.read(4).startswith((b"PK\x03\x04", b"\x80"))


def _is_tracker(path: Path) -> bool:
    word = path.read_bytes()[:64].strip()
    return word.isdigit() or word == b"release"


_CHECKS: Final[Mapping[str, Callable[[Path], bool]]] = {
    ".json": _is_object,
    ".safetensors": _is_safetensors,
    ".distcp": _is_torch,
    ".pt": _is_torch,
    ".metadata": _is_torch,
    TRACKER: _is_tracker,
}
