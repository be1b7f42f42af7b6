"""Names in torch pickles: the functions that rebuild tensors, dtypes, and classes read as inert records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from pathlib import Path
from typing import Any

from launcher.convert.containers.dtypes import SIZES, STORAGE_DTYPES, TORCH_DTYPES
from launcher.convert.containers.errors import Damaged, Unsupported
from launcher.convert.containers.records import Dtype, Inert
from launcher.convert.containers.unpickle import Build, Machine
from launcher.records import dataclass

_MOST_NODES = 3_000_000
_MOST = 2**63
# Modules whose classes describe arguments and states; they are recorded by name and never imported.
_KNOWN_MODULES = ("argparse.", "datetime.", "enum.", "megatron.", "numpy.", "pathlib.", "transformer_engine.", "types.")
_KNOWN = {
    *(f"builtins.{kind}" for kind in ("bool", "dict", "float", "int", "list", "range", "slice", "str", "tuple")),
    "collections.deque",
    "io.BytesIO",
    "_io.BytesIO",
    "signal.Signals",
    "torch.device",
    "torch.memory_format",
    "torch._C.Generator",
    "uuid.UUID",
}
_REBUILT_OTHERWISE = {
    "torch._utils._rebuild_qtensor": "quantised",
    "torch._utils._rebuild_sparse_tensor": "sparse",
    "torch._utils._rebuild_sparse_csr_tensor": "sparse",
    "torch._utils._rebuild_nested_tensor": "nested",
    "torch._utils._rebuild_meta_tensor_no_storage": "without data (device meta)",
    "torch._utils._rebuild_wrapper_subclass": "a tensor subclass",
    "torch._tensor._rebuild_from_type_v2": "a tensor subclass",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """A storage that a pickle refers to: its key in the archive, its dtype (None: untyped) and its size in bytes."""

    key: str
    dtype: str | None
    nbytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTensor:
    """An unnamed tensor as the pickle rebuilds it; offset and strides in elements."""

    storage: Storage
    dtype: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def contiguous(self) -> bool:
        """Return whether the tensor is contiguous."""
        expected = 1
        for size, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if size != 1 and stride != expected:
                return prod(self.shape) == 0
            expected *= size
        return True


def load(data: bytes, path: Path, *, allow: Sequence[str] = ()) -> Any:
    """Read a pickle of torch.save; tensors become `StoredTensor`, other objects `Inert`.

    `allow`: additional modules ("package.") whose classes may be recorded. Unsafe for any other name.
    """
    modules = (*_KNOWN_MODULES, *allow)
    builds = _Builds(path)

    def known(name: str) -> bool:
        return name in _KNOWN or name.startswith(modules) or (name.startswith("torch.") and _is_storage(name))

    machine = Machine(data, path, build=builds.table, known=known, persistent=builds.storage)
    return machine.run()


def _is_storage(name: str) -> bool:
    return name.rpartition(".")[2] in STORAGE_DTYPES or name.endswith(".UntypedStorage")


class _Builds:
    """Replacements for the functions that a checkpoint's pickle calls."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.table: dict[str, Build] = {
            "collections.OrderedDict": lambda items=(): dict(items),
            "collections.defaultdict": lambda factory=None: {},
            "_codecs.encode": _encode,
            "builtins.set": lambda items=(): set(_plain(items)),
            "builtins.frozenset": lambda items=(): frozenset(_plain(items)),
            "builtins.bytes": lambda: b"",
            "builtins.bytearray": lambda value=b"", *rest: _encode(value, *rest) if rest else bytes(_bytes_of(value)),
            "builtins.complex": complex,
            "torch.Size": lambda sizes=(): _sizes(sizes),
            "torch._utils._rebuild_tensor": self._tensor,
            "torch._utils._rebuild_tensor_v2": self._tensor,
            "torch._utils._rebuild_tensor_v3": self._tensor_of_dtype,
            "torch._utils._rebuild_parameter": lambda tensor, *rest: tensor,
            "torch._utils._rebuild_parameter_with_state": lambda tensor, *rest: tensor,
            "torch.serialization._get_layout": lambda name: Inert(name="torch.layout", made="call", arguments=(name,)),
            **{name: self._refuse(kind) for name, kind in _REBUILT_OTHERWISE.items()},
            **{f"torch.{name}": _not_called for name in TORCH_DTYPES},
        }

    def storage(self, pid: Any) -> Storage:
        """Resolve ("storage", class, key, location, elements), torch/serialization.py `persistent_id`."""
        word, kind, key, _, count = pid
        if word != "storage" or not isinstance(kind, Inert) or not _is_storage(kind.name) or type(key) is not str:
            raise ValueError
        dtype = STORAGE_DTYPES.get(kind.name.rpartition(".")[2])
        (count,) = _sizes((count,))
        return Storage(key=key, dtype=dtype, nbytes=count * SIZES[dtype] if dtype else count)

    def _tensor(self, storage: Any, offset: Any, shape: Any, strides: Any, *rest: Any) -> StoredTensor:
        if not isinstance(storage, Storage) or storage.dtype is None:
            raise TypeError
        return self._checked(storage, storage.dtype, offset, shape, strides)

    def _tensor_of_dtype(
        self, storage: Any, offset: Any, shape: Any, strides: Any, grad: Any, hooks: Any, dtype: Any, *rest: Any
    ) -> StoredTensor:
        if not isinstance(storage, Storage) or not isinstance(dtype, Inert):
            raise TypeError
        name = TORCH_DTYPES.get(dtype.name.removeprefix("torch."))
        if name is None:
            raise Unsupported(self.path, f"holds a tensor of {dtype.name}")
        return self._checked(storage, name, offset, shape, strides)

    def _checked(self, storage: Storage, dtype: str, offset: Any, shape: Any, strides: Any) -> StoredTensor:
        """Reject a tensor that extends beyond its storage."""
        sizes, steps, (first,) = _sizes(shape), _sizes(strides), _sizes((offset,))
        if len(sizes) != len(steps):
            raise ValueError
        reach = first + sum((size - 1) * step for size, step in zip(sizes, steps, strict=True)) + 1
        if prod(sizes) and reach * SIZES[dtype] > storage.nbytes:
            raise Damaged(
                self.path,
                f"a tensor of shape {sizes} reaches beyond its storage {storage.key}",
                expected=f"{reach * SIZES[dtype]} bytes",
                found=storage.nbytes,
            )
        return StoredTensor(storage=storage, dtype=dtype, offset=first, shape=sizes, strides=steps)

    def _refuse(self, kind: str) -> Build:
        def refuse(*arguments: Any) -> Any:
            raise Unsupported(self.path, f"holds a tensor that is {kind}", works="dense tensors")

        return refuse


def _not_called(*arguments: Any) -> Any:
    raise TypeError


def _encode(text: Any, encoding: Any) -> bytes:
    if type(text) is not str or encoding not in ("latin1", "latin-1"):
        raise TypeError
    return text.encode("latin-1")


def _bytes_of(value: Any) -> bytes:
    if type(value) is not bytes:
        raise TypeError
    return value


def _plain(items: Any) -> list[Any]:
    if type(items) is not list or any(type(item) is tuple for item in items):
        raise TypeError
    return items


def _sizes(values: Any) -> tuple[int, ...]:
    if type(values) not in (tuple, list) or len(values) > 64:
        raise TypeError
    if not all(type(value) is int and 0 <= value < _MOST for value in values):
        raise ValueError
    return tuple(values)


class Walk:
    """Rebuild a loaded structure with every tensor replaced, named by its path; rejects cycles and too many nodes."""

    def __init__(self, path: Path, tensor: Callable[[str, StoredTensor], Any], *, most: int = _MOST_NODES) -> None:
        self._path = path
        self._tensor = tensor
        self._open: set[int] = set()
        self._left = most

    def run(self, value: Any) -> Any:
        """Return the structure; Damaged if it contains itself or is nested too deep."""
        try:
            return self._walk("", value)
        except RecursionError:
            raise Damaged(self._path, "its structure is nested too deeply") from None

    def _walk(self, name: str, value: Any) -> Any:
        kind = type(value)
        if kind is StoredTensor:
            return self._tensor(name, value)
        if kind not in (dict, list, tuple, Inert):
            return value
        self._left -= 1 if kind is Inert else 1 + len(value)
        if id(value) in self._open or self._left < 0:
            raise Damaged(self._path, "its structure contains itself or refers to itself too often")
        self._open.add(id(value))
        if kind is dict:
            made: Any = {key: self._walk(_join(name, key), item) for key, item in value.items()}
        elif kind is Inert:
            made = self._inert(name, value)
        else:
            made = kind([self._walk(_join(name, at), item) for at, item in enumerate(value)])
        self._open.discard(id(value))
        return made

    def _inert(self, name: str, value: Inert) -> Inert | Dtype:
        dtype = TORCH_DTYPES.get(value.name.removeprefix("torch.")) if value.made == "reference" else None
        if dtype and value.name.startswith("torch."):
            return Dtype(name=dtype)
        arguments = tuple(self._walk(_join(name, at), item) for at, item in enumerate(value.arguments))
        return Inert(name=value.name, made=value.made, arguments=arguments, state=self._walk(name, value.state))


def _join(name: str, key: Any) -> str:
    text = key if isinstance(key, str) else key.name if isinstance(key, Inert) else repr(key)
    return f"{name}.{text}" if name else text
