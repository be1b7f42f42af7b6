"""Reads and lays out files of torch.save without torch: a zip with one pickle and one entry per storage.

Source: torch/serialization.py `_save`, `_load`. See `archive` for the zip layout, `unpickle` for the pickle.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from launcher.convert.containers.archive import Archive, Layout, Piece, lay_out
from launcher.convert.containers.dtypes import SIZES, nbytes
from launcher.convert.containers.errors import Damaged, Unsupported
from launcher.convert.containers.files import create_sized, open_to_read, read_exactly
from launcher.convert.containers.pickling import Pickler
from launcher.convert.containers.records import Slot, TensorSpec, namespace
from launcher.convert.containers.torch_objects import StoredTensor, Walk, load

__all__ = ["create", "namespace", "read", "read_part"]

_LEGACY = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # torch/serialization.py MAGIC_NUMBER, pickled
_AGAIN = "torch.save(torch.load(FILE, map_location='cpu'), FILE) with torch 1.6 or newer, where you trust FILE"


def read(path: Path, *, allow: Sequence[str] = ()) -> Any:
    """Read a file's structure with a `Slot` in place of every tensor, named by its keys joined with dots.

    Executes nothing, reads no tensor data. `allow`: modules ("package.") whose classes are permitted in addition.
    """
    descriptor = open_to_read(path)
    try:
        length = os.fstat(descriptor).st_size
        head = read_exactly(descriptor, path, 0, min(length, 512), "the file's beginning")
        if head.startswith(_LEGACY):
            raise Unsupported(path, "written in torch's format from before 1.6 (one stream, no zip)", works=_AGAIN)
        if len(head) == 512 and head[257:262] == b"ustar":
            raise Unsupported(path, "written in torch's format from before 0.4 (tar)", works=_AGAIN)
        if not head.startswith(b"PK\x03\x04"):
            raise Damaged(path, "not a file of torch.save", expected="a zip (PK)", found=head[:4] or "an empty file")
        return read_part(descriptor, path, 0, length, allow=allow)
    finally:
        os.close(descriptor)


def read_part(
    descriptor: int, path: Path, start: int, length: int, *, allow: Sequence[str] = (), what: str | None = None
) -> Any:
    """Read torch.save output of `length` bytes at `start` of a file; `what` names it in errors, and its tensor."""
    archive = Archive(descriptor, path, start, length, what)
    if "byteorder" in archive.entries and archive.read("byteorder") != b"little":
        raise Unsupported(path, "written on a big-endian machine")
    if "constants.pkl" in archive.entries:
        raise Unsupported(path, "a TorchScript archive, not a checkpoint")
    structure = load(archive.read("data.pkl"), path, allow=allow)

    def slot(name: str, tensor: StoredTensor) -> Slot:
        return _slot(archive, (what or "") + name, tensor)

    return Walk(path, slot).run(structure)


def _slot(archive: Archive, name: str, tensor: StoredTensor) -> Slot:
    if not tensor.contiguous():
        found = f"shape {tensor.shape} with strides {tensor.strides}"
        works = "a copy saved with .contiguous()"
        raise Unsupported(
            archive.path, "not contiguous", tensor=name, expected="rows in order", found=found, works=works
        )
    entry = archive.entries.get(f"data/{tensor.storage.key}")
    if entry is None:
        raise Damaged(archive.path, f"its storage data/{tensor.storage.key} is missing in the archive", tensor=name)
    if entry.size != tensor.storage.nbytes:
        expected = f"{tensor.storage.nbytes} bytes"
        raise Damaged(archive.path, "its storage has another size", tensor=name, expected=expected, found=entry.size)
    offset = entry.at + tensor.offset * SIZES[tensor.dtype]
    return Slot(name=name, shape=tensor.shape, dtype=tensor.dtype, path=archive.path, offset=offset)


def lay_out_part(structure: Any, folder: str, *, start: int = 0) -> tuple[Layout, list[tuple[TensorSpec, int]]]:
    """Lay out a structure as torch.save would write it; return the layout and every tensor with its offset."""
    tensors: list[TensorSpec] = []

    def storage(tensor: TensorSpec) -> str:
        tensors.append(tensor)
        return str(len(tensors) - 1)

    pickle = Pickler(storage).dump(structure)
    pieces = [
        Piece(name="data.pkl", size=len(pickle), data=pickle),
        Piece(name="byteorder", size=6, data=b"little"),
        *(Piece(name=f"data/{key}", size=nbytes(tensor)) for key, tensor in enumerate(tensors)),
        Piece(name="version", size=2, data=b"3\n"),
    ]
    layout = lay_out(folder, pieces, start=start)
    return layout, [(tensor, layout.places[f"data/{key}"]) for key, tensor in enumerate(tensors)]


def create(path: Path, structure: Any) -> list[Slot]:
    """Create a torch.save file of `structure`, with a hole for every `TensorSpec` in it.

    Returns the tensors' slots in the order of the structure. TypeError for a value of an unsupported type.
    """
    layout, tensors = lay_out_part(structure, path.stem)
    create_sized(path, layout.pieces, layout.size)
    return [
        Slot(name=tensor.name, shape=tensor.shape, dtype=tensor.dtype, path=path, offset=at) for tensor, at in tensors
    ]
