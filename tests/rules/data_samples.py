"""Small data files of every form that people have, and what each backend's own code makes of them."""

import gzip
import json
from pathlib import Path
from typing import Any

CHAT = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
TURNS = [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]
Content = str | bytes | list[Any]
FILES: dict[str, Content] = {
    "chats.jsonl": [{"messages": CHAT}, {"messages": CHAT}],
    "chats_after_blank_lines.jsonl": "\n\n" + json.dumps({"messages": CHAT}) + "\n",
    "chats_with_byte_order_mark.jsonl": "\ufeff" + json.dumps({"messages": CHAT}) + "\n",
    "array.json": json.dumps([{"messages": CHAT}] * 2, indent=1),
    "array.jsonl": json.dumps([{"messages": CHAT}] * 2),
    "one_record.json": json.dumps({"messages": CHAT}, indent=2),
    "long_record.jsonl": [{"meta": "x" * 40_000, "messages": CHAT}],
    "sharegpt.jsonl": [{"id": "1", "conversations": TURNS}],
    "sharegpt_in_messages.jsonl": [{"messages": TURNS}],
    "pairs_of_turns.jsonl": [{"conversation": [{"human": "a", "assistant": "b"}]}],
    "alpaca.jsonl": [{"instruction": "a", "input": "", "output": "b"}],
    "alpaca_without_input.jsonl": [{"instruction": "a", "output": "b"}],
    "questions.jsonl": [{"question": "a", "answer": "b"}],
    "capitals.jsonl": [{"Query": "a", "Response": "b"}],
    "history.jsonl": [{"history": [["a", "b"]]}],
    "texts.jsonl": [{"text": "abc"}],
    "tokens.jsonl": [{"input_ids": [1, 2], "labels": [1, 2]}],
    "preferences.jsonl": [{"chosen": "a", "rejected": "b"}],
    "unknown_columns.jsonl": [{"foo": 1, "bar": "x"}],
    "unknown_turns.jsonl": [{"messages": [{"speaker": "user", "text": "a"}]}],
    "plain.txt": "plain\nwords\n",
    "plain.jsonl": "plain\nwords\n",
    "chats.txt": [{"messages": CHAT}],
    "python.jsonl": repr({"messages": CHAT}) + "\n",
    "empty.jsonl": "",
    "blank.jsonl": "\n\n",
    "chats.data": [{"messages": CHAT}],
    "chats": [{"messages": CHAT}],
    "questions.csv": "question,answer\na,b\n",
    "unknown.csv": "foo,bar\na,b\n",
    "parquet.jsonl": b"PAR1xxxxPAR1",
    "chats.parquet": [{"messages": CHAT}],
    "chats.jsonl.gz": gzip.compress(json.dumps({"messages": CHAT}).encode()),
    "gzip.jsonl": gzip.compress(json.dumps({"messages": CHAT}).encode()),
}

SWIFT_READS = frozenset(
    {"chats.jsonl", "chats_after_blank_lines.jsonl", "chats_with_byte_order_mark.jsonl", "array.json", "array.jsonl"}
    | {"one_record.json", "long_record.jsonl", "sharegpt.jsonl", "sharegpt_in_messages.jsonl", "pairs_of_turns.jsonl"}
    | {"alpaca.jsonl", "alpaca_without_input.jsonl", "questions.jsonl", "capitals.jsonl", "history.jsonl"}
    | {"texts.jsonl", "plain.txt", "chats.txt", "questions.csv", "gzip.jsonl"}
)
"""Of which ms-swift 4.6.0 makes samples; `test_data_files_real` asks it."""


def write(folder: Path, name: str) -> Path:
    """Write one of the files."""
    content, path = FILES[name], folder / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        lines = content if isinstance(content, str) else "".join(f"{json.dumps(each)}\n" for each in content)
        path.write_text(lines, encoding="utf-8")
    return path


def token_files(folder: Path, prefix: str = "tokens") -> Path:
    """Write a pair of token files; return their prefix."""
    (folder / f"{prefix}.idx").write_bytes(b"MMIDIDX\x00\x00" + bytes(40))
    (folder / f"{prefix}.bin").write_bytes(bytes(range(64)))
    return folder / prefix
