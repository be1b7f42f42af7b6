"""Number formats: exact byte views, requested casts, and the blockwise scales of FP8 checkpoints."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from launcher.convert.containers.dtypes import SIZES
from launcher.convert.containers.errors import ConvertError
from launcher.convert.errors import WrongWord

FLOATS: Final = ("F32", "BF16", "F16", "F64", "F8_E4M3")
# Names of number formats in options and config.json.
NAMES: Final = {
    "bf16": "BF16",
    "bfloat16": "BF16",
    "fp16": "F16",
    "float16": "F16",
    "fp32": "F32",
    "float32": "F32",
}
BLOCK: Final = 128
_INTEGERS: Final = {"I32": "<i4", "I64": "<i8"}
_WORDS = {1: "u1", 2: "<u2", 4: "<u4", 8: "<u8"}


def word(itemsize: int) -> str:
    """Return the numpy dtype used to copy elements of that size without interpreting them."""
    return _WORDS[itemsize]


def dtype_named(name: str) -> str:
    """Return safetensors' name of a number format.

    Raises:
        WrongWord: the format is unknown or not one that weights can be cast to.
    """
    found = NAMES.get(name.lower())
    if found is None:
        raise WrongWord(f"--dtype {name}: works: bf16, fp16, fp32")
    return found


def cast(words: Any, source: str, target: str) -> Any:
    """Cast an array of bit patterns from format `source` to format `target`, rounding to nearest even."""
    if source == target:
        return words
    return _encode(decode(words, source), target)


def decode(words: Any, dtype: str) -> Any:
    """Return bit patterns as float32 values (float64 for F64, whole numbers for I32 and I64)."""
    import numpy as np

    if dtype == "F32":
        return words.view(np.float32)
    if dtype == "BF16":
        return (words.astype(np.uint32) << 16).view(np.float32)
    if dtype == "F16":
        return words.view(np.float16).astype(np.float32)
    if dtype == "F64":
        return words.view(np.float64)
    if dtype == "F8_E4M3":
        return _e4m3()[words]
    if dtype in _INTEGERS:
        return words.view(_INTEGERS[dtype])
    raise ConvertError(f"tensors of format {dtype} cannot be cast")


def _encode(values: Any, dtype: str) -> Any:
    import numpy as np

    if dtype in _INTEGERS:
        whole: Any = values.astype(_INTEGERS[dtype])
        if not np.array_equal(whole, values):
            raise ConvertError(f"whole numbers up to {values.max()}: {dtype} cannot hold them")
        return whole.view(word(whole.itemsize))
    # Values out of range become infinite here; `launcher.convert.losses` counts them.
    with np.errstate(over="ignore"):
        if dtype == "F32":
            return np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
        if dtype == "F16":
            return values.astype(np.float16).view(np.uint16)
        if dtype == "BF16":
            return _bfloat16(np.ascontiguousarray(values, dtype=np.float32))
    raise ConvertError(f"no cast to format {dtype}")


def _bfloat16(values: Any) -> Any:
    """Round float32 to nearest even at bit 16; in place on one temporary, because most of the time is spent here."""
    import numpy as np

    bits = values.view(np.uint32)
    rounded: Any = bits >> 16
    rounded &= 1
    rounded += 0x7FFF
    rounded += bits
    rounded >>= 16
    found = rounded.astype(np.uint16)
    invalid = np.isnan(values)
    if invalid.any():
        found[invalid] = 0x7FC0
    return found


@cache
def _e4m3() -> Any:
    """The 256 values of FP8 E4M3 (fn): 1 sign, 4 exponent bits of bias 7, 3 mantissa bits; 0x7F is NaN, no infinity."""
    import numpy as np

    codes = np.arange(256)
    exponent, mantissa = (codes >> 3) & 15, codes & 7
    values = np.where(exponent == 0, mantissa * 2.0**-9, (1 + mantissa / 8) * 2.0 ** (exponent - 7.0))
    values[(codes & 0x7F) == 0x7F] = np.nan
    return np.where(codes >> 7, -values, values).astype(np.float32)


def dequantised(words: Any, dtype: str, scales: Any, row: int, column: int) -> Any:
    """Return a block of a blockwise scaled tensor as float32 values.

    Args:
        words: bit patterns of the block, rows x columns.
        dtype: its format, F8_E4M3.
        scales: float32 scales of the whole tensor, one for each 128 x 128 block.
        row: first row of the block in the whole tensor.
        column: its first column.
    """
    import numpy as np

    values = decode(words, dtype)
    columns: Any = (column + np.arange(values.shape[1])) // BLOCK
    for block in range(row // BLOCK, -(-(row + values.shape[0]) // BLOCK)):
        first, last = max(0, block * BLOCK - row), (block + 1) * BLOCK - row
        values[first:last] *= scales[block, columns]
    return values


def encode(values: Any, dtype: str) -> Any:
    """Return float values as bit patterns of a format, rounded to nearest even."""
    return _encode(values, dtype)


# Exponent bits: a value with all of them set is NaN or infinite (E4M3: one pattern per sign, NaN).
_EXPONENT: Final = {"F16": 0x7C00, "BF16": 0x7F80, "F32": 0x7F800000, "F64": 0x7FF0000000000000, "F8_E4M3": 0x7F}
# Elements per step: few enough to stay in a core's cache.
_LOOK: Final = 1 << 18


def may_be_nan(pattern: int, dtype: str) -> bool:
    """Return whether a bit pattern has the exponent of NaN and of infinity."""
    return pattern & _EXPONENT[dtype] == _EXPONENT[dtype]


def not_finite(data: Any, dtype: str) -> tuple[int, int]:
    """Return the counts of NaN and of infinite values in a buffer; (0, 0) for formats without them.

    Fast path at memory speed: the largest bit pattern read as a signed integer (positive values) and as an unsigned
    integer (negative values) shows whether there is any.
    """
    import numpy as np

    limit = _EXPONENT.get(dtype)
    if limit is None:
        return 0, 0
    kind = _WORDS[SIZES[dtype]]
    words, signed = np.frombuffer(data, dtype=kind), np.frombuffer(data, dtype=kind.replace("u", "i"))
    sign, largest = 1 << (8 * SIZES[dtype] - 1), np.maximum.reduce
    nan = infinite = 0
    for start in range(0, words.size, _LOOK):
        part = words[start : start + _LOOK]
        if largest(signed[start : start + _LOOK]) < limit and largest(part) < (sign | limit):
            continue
        size = part & part.dtype.type(sign - 1)
        odd, equal = int(np.count_nonzero(size >= limit)), int(np.count_nonzero(size == limit))
        infinite += equal if dtype != "F8_E4M3" else 0
        nan += odd - equal if dtype != "F8_E4M3" else odd
    return nan, infinite
