"""Writes the .bin/.idx pair of Megatron's indexed datasets (megatron/core/datasets/indexed_dataset.py:165)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any


def write_tokens(prefix: Path, documents: Sequence[Any]) -> str:
    """Write documents, each an array of tokens below 65,536, and return the prefix."""
    import numpy

    lengths = numpy.array([len(document) for document in documents], dtype=numpy.int32)
    pointers = numpy.concatenate([[0], numpy.cumsum(lengths[:-1].astype(numpy.int64) * 2)]).astype(numpy.int64)
    prefix.with_suffix(".bin").write_bytes(b"".join(document.astype(numpy.uint16).tobytes() for document in documents))
    head = b"MMIDIDX\x00\x00" + numpy.uint64(1).tobytes() + numpy.uint8(8).tobytes()
    counts = numpy.uint64(len(documents)).tobytes() + numpy.uint64(len(documents) + 1).tobytes()
    order = numpy.arange(len(documents) + 1, dtype=numpy.int64).tobytes()
    prefix.with_suffix(".idx").write_bytes(head + counts + lengths.tobytes() + pointers.tobytes() + order)
    return str(prefix)
