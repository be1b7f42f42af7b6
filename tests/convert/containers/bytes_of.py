"""What the tests of containers share: filling slots with bytes that are known, and reading them back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

from launcher.convert.containers.dtypes import nbytes
from launcher.convert.containers.errors import ContainerError
from launcher.convert.containers.records import Inert, Slot
from launcher.convert.containers.transfer import OpenFiles, write


def content(name: str, count: int) -> bytes:
    """Bytes that belong to a name; any two names differ. The high bits are clear, so they are numbers in any dtype."""
    block = bytes(byte & 0x3F for byte in sha256(name.encode()).digest())
    return (block * (count // len(block) + 1))[:count]


def booleans(name: str, count: int) -> bytes:
    return bytes(byte & 1 for byte in content(name, count))


def expected(slot: Slot) -> bytes:
    make = booleans if slot.dtype == "BOOL" else content
    return make(slot.name, nbytes(slot))


def fill(slots: Iterable[Slot]) -> None:
    with OpenFiles() as files:
        for slot in slots:
            write(files, slot.path, slot.offset, [expected(slot)])


def stored(slot: Slot) -> bytes:
    with Path(slot.path).open("rb") as file:
        file.seek(slot.offset)
        return file.read(nbytes(slot))


def outcome(read: Callable[[], Any]) -> Any:
    """What `read` returns, or the error of ours that it ends in; any other error goes through."""
    try:
        return read()
    except ContainerError as error:
        return error


def slots(structure: Any) -> Iterator[Slot]:
    """Yield every slot of a structure that `read` returned, in its order."""
    if isinstance(structure, Slot):
        yield structure
    elif isinstance(structure, dict):
        for value in structure.values():
            yield from slots(value)
    elif isinstance(structure, (list, tuple)):
        for value in structure:
            yield from slots(value)
    elif isinstance(structure, Inert):
        yield from slots(structure.arguments)
        yield from slots(structure.state)


def bytes_io(data: bytes) -> Inert:
    """An io.BytesIO with this content, as transformer-engine stored extra states."""
    return Inert(name="_io.BytesIO", state=(data, 0, None))
