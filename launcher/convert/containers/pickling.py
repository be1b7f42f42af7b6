"""Pickle writer for the protocol that torch.save uses and torch's restricted unpickler accepts.

Only plain values, `Inert` records, dtypes and `TensorSpec` can be written, so no module is imported for it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from launcher.convert.containers.dtypes import STORAGES, TORCH_NAMES, nbytes
from launcher.convert.containers.records import Dtype, Inert, TensorSpec

# Module names in protocol 2 (Lib/_compat_pickle.py REVERSE_NAME_MAPPING, as pickle itself writes it).
_OLD_MODULES = {"builtins": "__builtin__", "copyreg": "copy_reg"}


class Pickler:
    """Pickles one value; `storage` maps each tensor to the key of its storage in the archive."""

    def __init__(self, storage: Callable[[TensorSpec], str] | None = None) -> None:
        self._parts: list[bytes] = [b"\x80\x02"]
        self._memo: dict[tuple[str, str], int] = {}
        self._storage = storage

    def dump(self, value: Any) -> bytes:
        """Return the pickle of `value`; TypeError for an unsupported type."""
        self._save(value)
        self._parts.append(b".")
        return b"".join(self._parts)

    def _save(self, value: Any) -> None:
        writer = _WRITERS.get(type(value))
        if writer is None:
            raise TypeError(f"a checkpoint cannot hold a {type(value).__name__} here")
        writer(self, value)

    def _once(self, kind: str, text: str, code: bytes) -> None:
        """Write a string or a name once and refer to it afterwards."""
        place = self._memo.get((kind, text))
        if place is not None:
            self._parts.append(b"h" + bytes([place]) if place < 256 else b"j" + struct.pack("<I", place))
            return
        place = self._memo[kind, text] = len(self._memo)
        self._parts += [code, b"q" + bytes([place]) if place < 256 else b"r" + struct.pack("<I", place)]

    def _constant(self, value: bool | None) -> None:
        self._parts.append({None: b"N", True: b"\x88", False: b"\x89"}[value])

    def _integer(self, value: int) -> None:
        if 0 <= value < 256:
            self._parts.append(b"K" + bytes([value]))
        elif -(2**31) <= value < 2**31:
            self._parts.append(b"J" + struct.pack("<i", value))
        else:
            data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
            self._parts.append(b"\x8a" + bytes([len(data)]) + data)

    def _float(self, value: float) -> None:
        self._parts.append(b"G" + struct.pack(">d", value))

    def _text(self, value: str) -> None:
        data = value.encode("utf-8", "surrogatepass")
        self._once("text", value, b"X" + struct.pack("<I", len(data)) + data)

    def _name(self, name: str) -> None:
        module, _, attribute = name.rpartition(".")
        self._once("name", name, f"c{_OLD_MODULES.get(module, module)}\n{attribute}\n".encode())

    def _call(self, name: str, *arguments: Any) -> None:
        self._name(name)
        self._tuple(arguments)
        self._parts.append(b"R")

    def _bytes(self, value: bytes) -> None:
        """Write bytes as in protocol 2: text and the name of its encoding."""
        self._call("_codecs.encode", value.decode("latin-1"), "latin1")

    def _tuple(self, value: tuple[Any, ...]) -> None:
        if not value:
            self._parts.append(b")")
            return
        self._parts.append(b"(")
        for item in value:
            self._save(item)
        self._parts.append(b"t")

    def _list(self, value: list[Any]) -> None:
        self._parts.append(b"](")
        for item in value:
            self._save(item)
        self._parts.append(b"e")

    def _dict(self, value: dict[Any, Any]) -> None:
        self._parts.append(b"}(")
        for key, item in value.items():
            self._save(key)
            self._save(item)
        self._parts.append(b"u")

    def _set(self, value: set[Any] | frozenset[Any]) -> None:
        self._call("builtins.set" if type(value) is set else "builtins.frozenset", list(value))

    def _complex(self, value: complex) -> None:
        self._call("builtins.complex", value.real, value.imag)

    def _inert(self, value: Inert) -> None:
        self._name(value.name)
        if value.made == "reference":
            return
        self._tuple(value.arguments)
        self._parts.append(b"R" if value.made == "call" else b"\x81")
        if value.state is not None:
            self._save(value.state)
            self._parts.append(b"b")

    def _dtype(self, value: Dtype) -> None:
        self._name(f"torch.{TORCH_NAMES[value.name]}")

    def _tensor(self, tensor: TensorSpec) -> None:
        """Write a tensor as torch.Tensor.__reduce_ex__ (torch/_tensor.py): untyped storages for newer dtypes only."""
        if self._storage is None:
            raise TypeError("no tensors can be stored here")
        strides = _strides(tensor.shape)
        typed = STORAGES.get(tensor.dtype)
        self._name("torch._utils._rebuild_tensor_v2" if typed else "torch._utils._rebuild_tensor_v3")
        self._parts.append(b"((")
        self._save("storage")
        self._name(f"torch.{typed}" if typed else "torch.storage.UntypedStorage")
        self._save(self._storage(tensor))
        self._save("cpu")
        self._save(_elements(tensor.shape) if typed else nbytes(tensor))
        self._parts.append(b"tQ")
        for value in (0, tuple(tensor.shape), strides, False):
            self._save(value)
        self._parts.append(b"ccollections\nOrderedDict\n)R")
        if not typed:
            self._dtype(Dtype(name=tensor.dtype))
        self._parts.append(b"tR")


def _elements(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return torch's strides of a contiguous tensor, in elements (sizes of zero count as one)."""
    strides, stride = [], 1
    for size in reversed(shape):
        strides.append(stride)
        stride *= max(size, 1)
    return tuple(reversed(strides))


_WRITERS: dict[type, Callable[[Pickler, Any], None]] = {
    type(None): Pickler._constant,
    bool: Pickler._constant,
    int: Pickler._integer,
    float: Pickler._float,
    complex: Pickler._complex,
    str: Pickler._text,
    bytes: Pickler._bytes,
    tuple: Pickler._tuple,
    list: Pickler._list,
    dict: Pickler._dict,
    set: Pickler._set,
    frozenset: Pickler._set,
    Inert: Pickler._inert,
    Dtype: Pickler._dtype,
    TensorSpec: Pickler._tensor,
}
