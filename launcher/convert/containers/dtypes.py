"""Element types: safetensors' names, their sizes, and torch's names in a pickle."""

from __future__ import annotations

from math import prod
from typing import Protocol

MXFP4 = "MXFP4"
"""Pairs of 4-bit values in bytes, which files call U8; our name, for tensors that are known to hold them."""
# safetensors' names (huggingface/safetensors, safetensors/src/tensor.rs `Dtype`) without sub-byte types.
SIZES = {
    "BOOL": 1,
    "U8": 1,
    "I8": 1,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
    "F8_E8M0": 1,
    "F8_E4M3FNUZ": 1,
    "F8_E5M2FNUZ": 1,
    "I16": 2,
    "U16": 2,
    "F16": 2,
    "BF16": 2,
    "I32": 4,
    "U32": 4,
    "F32": 4,
    "I64": 8,
    "U64": 8,
    "F64": 8,
    "C64": 8,
    MXFP4: 1,
}
# torch/storage.py: the classes of pickled typed storages. Newer dtypes have none and are pickled as untyped storages.
STORAGES = {
    "BOOL": "BoolStorage",
    "U8": "ByteStorage",
    "I8": "CharStorage",
    "I16": "ShortStorage",
    "F16": "HalfStorage",
    "BF16": "BFloat16Storage",
    "I32": "IntStorage",
    "F32": "FloatStorage",
    "I64": "LongStorage",
    "F64": "DoubleStorage",
    "C64": "ComplexFloatStorage",
}
STORAGE_DTYPES = {storage: dtype for dtype, storage in STORAGES.items()}
TORCH_NAMES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "I16": "int16",
    "U16": "uint16",
    "F16": "float16",
    "BF16": "bfloat16",
    "I32": "int32",
    "U32": "uint32",
    "F32": "float32",
    "I64": "int64",
    "U64": "uint64",
    "F64": "float64",
    "C64": "complex64",
}
TORCH_DTYPES = {torch: dtype for dtype, torch in TORCH_NAMES.items()}


class Sized(Protocol):
    """Anything with a shape and a dtype: a slot or a tensor specification."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> str: ...


def itemsize(dtype: str) -> int:
    """Return the bytes of one element; KeyError for an unknown safetensors dtype."""
    return SIZES[dtype]


def nbytes(tensor: Sized) -> int:
    """Return the size of a tensor in bytes."""
    return prod(tensor.shape) * SIZES[tensor.dtype]
