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
MESSAGES, PAIRS, LABELLED, PROMPTS = "conversations.jsonl", "pairs.jsonl", "labelled.jsonl", "prompts.jsonl"
"""Records as Megatron-SWIFT reads them: for sft; for dpo and reward models; for kto; for grpo."""
# Of the shipped tokenizer, whose tokens below 256 are the bytes. Not its padding: Megatron-core 0.12 masks the loss of
# padding, also where it ends a document (megatron/core/datasets/gpt_dataset.py:203).
END_OF_DOCUMENT = 258
_PROMPT_LETTERS, _LEAST_LETTERS = 12, 100
# An answer that fits a short sequence beside a chat template in bytes: Megatron-SWIFT drops what is longer.
_ANSWER_LETTERS = 64
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
    for name, records in record_files(_ANSWER_LETTERS).items():
        (folder / name).write_text("".join(f"{json.dumps(each, ensure_ascii=False)}\n" for each in records), "utf-8")
    write_token_file(folder / TOKENS, [[*text.encode("utf-8"), END_OF_DOCUMENT] for text in texts])


def record_files(letters: int | None = None) -> dict[str, list[dict[str, object]]]:
    """Return the shipped text as records, by file: the beginning of a paragraph asks, how it goes on answers.

    The worse answer of a pair is how the next paragraph goes on.

    Args:
        letters: length of the answers; None: the rest of the paragraphs.
    """
    texts = [text for text in (" ".join(each.split()) for each in documents()) if len(text) > _LEAST_LETTERS]
    rest = [text[_PROMPT_LETTERS:][:letters] for text in texts]
    files: dict[str, list[dict[str, object]]] = {name: [] for name in (MESSAGES, PAIRS, LABELLED, PROMPTS)}
    for number, (text, better, worse) in enumerate(zip(texts, rest, [*rest[1:], rest[0]], strict=True)):
        if better == worse:  # a heading that comes twice, and no pair
            continue
        asked = {"role": "user", "content": text[:_PROMPT_LETTERS]}
        good, bad = ([asked, {"role": "assistant", "content": answer}] for answer in (better, worse))
        liked = number % 2 == 0
        files[MESSAGES].append({"messages": good})
        files[PAIRS].append({"messages": good, "rejected_response": worse})
        files[LABELLED].append({"messages": good if liked else bad, "label": liked})
        files[PROMPTS].append({"messages": [asked], "solution": better})
    return files


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
