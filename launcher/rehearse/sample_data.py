"""The shipped text in the formats that backends read: JSONL and Megatron's token file; no library needed.

python -m launcher.rehearse.sample_data FOLDER
"""

import array
import itertools
import json
import struct
import sys
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

TEXT, TOKENS = "sample.jsonl", "sample_text_document"
# Of the shipped tokenizer, whose tokens below 256 are the bytes. Not its padding: Megatron-core 0.12 masks the loss of
# padding, also where it ends a document (megatron/core/datasets/gpt_dataset.py:203).
END_OF_DOCUMENT = 258
_MAGIC, _VERSION, _UINT16 = b"MMIDIDX\x00\x00", 1, 8  # megatron/core/datasets/indexed_dataset.py


def tokenizer_directory() -> str:
    """Return the directory of the tokenizer that belongs to the sample: bytes as tokens."""
    return str(resources.files("launcher.rehearse.assets").joinpath("tokenizer"))


def documents() -> list[str]:
    """Return the paragraphs of the shipped text."""
    text = resources.files("launcher.rehearse.assets").joinpath("moby_dick.txt").read_text(encoding="utf-8")
    return [paragraph for paragraph in text.split("\n\n") if paragraph.strip()]


def write(folder: Path) -> None:
    """Write `sample.jsonl` and `sample_text_document.{bin,idx}` into a folder; always the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = documents()
    lines = (json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts)
    (folder / TEXT).write_text("".join(lines), encoding="utf-8")
    write_token_file(folder / TOKENS, [[*text.encode("utf-8"), END_OF_DOCUMENT] for text in texts])


def write_token_file(prefix: Path, tokens: Sequence[Sequence[int]]) -> None:
    """Write documents of token numbers below 65,536 as `prefix`.bin and `prefix`.idx."""
    lengths = [len(document) for document in tokens]
    starts = [2 * start for start in itertools.accumulate(lengths, initial=0)][:-1]
    flat = array.array("H", [token for document in tokens for token in document])
    prefix.with_name(f"{prefix.name}.bin").write_bytes(flat.tobytes())
    head = _MAGIC + struct.pack("<QBQQ", _VERSION, _UINT16, len(tokens), len(tokens) + 1)
    index = array.array("i", lengths).tobytes() + array.array("q", starts).tobytes()
    whole = head + index + array.array("q", range(len(tokens) + 1)).tobytes()
    prefix.with_name(f"{prefix.name}.idx").write_bytes(whole)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
