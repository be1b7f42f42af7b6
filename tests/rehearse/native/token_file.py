"""Writes a small Megatron token file (.bin and .idx) that a tiny model learns in a few steps, without any library."""

import array
import random
import struct
from pathlib import Path

VOCABULARY = 127
"""Tokens 0 to 125 are text, 126 ends a document."""
_MAGIC, _VERSION, _UINT16 = b"MMIDIDX\x00\x00", 1, 8


def write_token_file(prefix: Path, *, documents: int = 400) -> Path:
    """Write ``prefix``.bin and ``prefix``.idx; always the same tokens. Returns ``prefix``.

    Each token follows from the one before it (three times it, plus 7, modulo 126) except for one in twenty, so the
    loss falls from ln(127) = 4.8 towards 0.44.
    """
    draw = random.Random(0)
    texts = [_document(draw) for _ in range(documents)]
    lengths = [len(text) for text in texts]
    starts = [2 * sum(lengths[:index]) for index in range(documents)]
    tokens = array.array("H", [token for text in texts for token in text])
    prefix.with_suffix(".bin").write_bytes(tokens.tobytes())
    head = _MAGIC + struct.pack("<QBQQ", _VERSION, _UINT16, documents, documents + 1)
    index = array.array("i", lengths).tobytes() + array.array("q", starts).tobytes()
    prefix.with_suffix(".idx").write_bytes(head + index + array.array("q", range(documents + 1)).tobytes())
    return prefix


def _document(draw: random.Random) -> list[int]:
    tokens = [draw.randrange(126)]
    for _ in range(draw.randrange(40, 200)):
        tokens.append((tokens[-1] * 3 + 7) % 126 if draw.random() > 0.05 else draw.randrange(126))
    return [*tokens, 126]
