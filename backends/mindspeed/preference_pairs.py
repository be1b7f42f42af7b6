"""Rewrites preference pairs for SharegptStylePairwiseHandler of MindSpeed-LLM; its text runs without Launch.

python preference_pairs.py OUT.jsonl IN.jsonl [IN.jsonl …]

A line of IN has `messages`, which end with the preferred answer, and `rejected_response` (a text) or
`rejected_messages` (which end with the rejected answer). Several files become one: MindSpeed-LLM reads one only
(mindspeed_llm/tasks/preprocess/decoder_packed_mtf_dataset.py:56 @26.1.0).
"""

import json
import os
import sys
from typing import Any

_SPEAKERS = {"system": "system", "user": "human", "assistant": "gpt"}


def rewritten(line: Any) -> "dict[str, Any]":
    """Return the columns of a pair; ValueError where it is none."""
    *before, chosen = line["messages"]
    rejected = line.get("rejected_response")
    if rejected is None:
        rejected = (line.get("rejected_messages") or [{}])[-1].get("content")
    if not isinstance(rejected, str):
        raise ValueError("no rejected_response (a text) and no rejected_messages")
    if chosen["role"] != "assistant" or not before or before[-1]["role"] != "user":
        raise ValueError("messages do not end with a question of the user and an answer of the assistant")
    return {
        "conversations": [_said(each["role"], each["content"]) for each in before],
        "chosen": _said("assistant", chosen["content"]),
        "rejected": _said("assistant", rejected),
    }


def _said(role: str, content: str) -> "dict[str, str]":
    if role not in _SPEAKERS:
        raise ValueError(f"a message of role {role!r}; known: {', '.join(_SPEAKERS)}")
    return {"from": _SPEAKERS[role], "value": content}


def main(out: str, *files: str) -> None:
    """Write `out`; an error names the file and the line."""
    os.makedirs(os.path.dirname(out) or ".", exist_ok=True)
    with open(out, "w", encoding="utf-8") as stream:
        for file in files:
            with open(file, encoding="utf-8") as lines:
                for number, line in enumerate(lines, 1):
                    try:
                        pair = rewritten(json.loads(line))
                    except (ValueError, KeyError, TypeError) as error:
                        sys.exit(f"{file}:{number}: no preference pair: {type(error).__name__}: {error}")
                    stream.write(json.dumps(pair, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
