"""Fingerprint of everything a conversion depends on; an interrupted one continues only if it is unchanged."""

from __future__ import annotations

import glob
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from launcher import __version__
from launcher.convert.containers.records import Slot
from launcher.convert.formats.huggingface import files_along

if TYPE_CHECKING:
    from launcher.convert.conversion import Prepared
    from launcher.convert.staging import Staging

_ROOT: Final = Path(__file__).resolve().parents[2]
# Source files of this program that determine the output.
_OWN: Final = (
    *("launcher/convert/**/*.py", "launcher/families/**/*.py", "launcher/pipeline_schedule/layout.py"),
    *("backends/*/checkpoint*/*.py", "backends/*/*.py"),
)
_SHOWN: Final = 4


def fingerprint(prepared: Prepared) -> str:
    """Return the dependencies of a planned conversion, as JSON: name of a part to its hash."""
    asked, draft = prepared.asked, prepared.draft
    wanted = [(tensor.name, tensor.shape, tensor.scale) for tensor in draft.wanted]
    return _text(
        {
            "the options": (
                *(asked.source_format.name, asked.target_format.name, wanted, draft.dtypes),
                *(repr(asked.layout), repr(asked.source_layout), sorted(prepared.originals)),
            ),
            "the model's sizes": repr(prepared.logical.model),
            "the adapter": [str(getattr(prepared.logical, name, "")) for name in ("rank", "alpha", "rslora", "config")],
            **_weights(slot for content in prepared.stored.contents for slot in _slots(content.slot, content.scale)),
            **_weights(content.slot for content in prepared.originals.values()),
            **_files(files_along(asked.donor)),
        }
    )


def _slots(slot: Slot, scale: Slot | None) -> Iterator[Slot]:
    yield slot
    if scale is not None:
        yield scale


def merge_fingerprint(tree: Mapping[str, Any], slots: Iterable[Slot], files: Iterable[Path]) -> str:
    """Return the fingerprint of a merge: its plan, the tensors it reads, and the files it copies or reads whole."""
    return _text({"the options": ("merge", dict(tree)), **_weights(slots), **_files(files)})


def starting_anew(out: Path, place: Staging, now: str) -> str | None:
    """Return why an interrupted conversion starts anew: the parts in which two fingerprints differ, or a file."""
    if place.left is not None:
        return f"{out}: starting anew: changed since the interrupted conversion: {_changed(place.left, now)}"
    if place.lost is not None:
        return f"{out}: starting anew: removed or changed in {place.directory.name}: {place.lost}"
    return None


def changed_meanwhile(out: Path, before: str, now: Callable[[], str]) -> str | None:
    """Return the parts in which the fingerprint differs at the end of a conversion; None if in none.

    A source that is written while it is read gives a mixture of old and new weights, and a truncated one zeros: both
    equal what a verification reads afterwards.
    """
    try:
        names = _changed(before, now())
    except OSError as error:
        names = f"{error.filename} ({error.strerror})"
    return f"{out}: not written: changed during the conversion: {names}" if names else None


def _changed(before: str, now: str) -> str:
    try:
        old, new = json.loads(before), json.loads(now)
    except ValueError:
        old, new = {}, {"this program": ""}
    names = [name for name in {**new, **old} if old.get(name) != new.get(name)]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _text(parts: Mapping[str, object]) -> str:
    hashes = {name: _hash(json.dumps(value, default=str).encode()) for name, value in parts.items()}
    return json.dumps({"this program": _program(), **hashes}, ensure_ascii=False, sort_keys=True)


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]


def _weights(slots: Iterable[Slot]) -> dict[str, object]:
    """Return the size, modification time and tensor headers of each file with tensors."""
    held: dict[Path, list[tuple[object, ...]]] = {}
    for slot in slots:
        held.setdefault(slot.path, []).append((slot.name, slot.dtype, slot.shape, slot.offset))
    return {
        str(path.resolve()): (path.stat().st_size, path.stat().st_mtime_ns, sorted(map(str, tensors)))
        for path, tensors in held.items()
    }


def _files(files: Iterable[Path]) -> dict[str, object]:
    """Return the content hash of each copied file."""
    return {str(file.resolve()): _hash(file.read_bytes()) for file in files}


@cache
def _program() -> str:
    """Return the version of this program and a hash of its source files."""
    # Neither by Path.glob nor Path.read_bytes, which take as long as all the rest.
    files = sorted({file for pattern in _OWN for file in glob.iglob(pattern, root_dir=_ROOT, recursive=True)})
    return f"{__version__} {_hash(b''.join(map(_content, files)))}"


def _content(file: str) -> bytes:
    with open(f"{_ROOT}/{file}", "rb", buffering=0) as opened:
        return opened.read()
