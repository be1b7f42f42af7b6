"""Preference pairs for DPO: one JSONL of messages that every backend formats itself, and its tokens for the reference.

A line has `messages` (a question and the preferred answer) and `rejected_response`, ms-swift's columns; MindSpeed-LLM's
launch plan rewrites it. Answers differ in length, so that padding and masks count.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launcher.job import Job
from launcher.parity.conversations import TURN_END, ChatTemplate, template_of
from launcher.parity.data import shipped_text, strided

PAIRS, STRIDED_PAIRS = "pairs.jsonl", "pairs_strided.jsonl"
_QUESTION, _LEAST_ANSWER = 4, 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Token numbers of a pair: the prompt, then each answer with what ends it."""

    prompt: Sequence[int]
    chosen: Sequence[int]
    rejected: Sequence[int]


def write_pairs(folder: Path, job: Job, *, samples: int, seq_length: int) -> None:
    """Write `pairs.jsonl`, in the order of the training.

    `pairs_strided.jsonl` has the same lines for backends with `strided_samples`.

    Raises:
        ValueError: a sequence is too short for a pair, or the shipped text for so many.
    """
    template, text = template_of(job) or ChatTemplate.longest(), shipped_text()
    asked = {"role": "user", "content": " " * _QUESTION}
    # One token less: MindSpeed-LLM drops answers that fill the sequence (data_handler.py:203 @26.1.0).
    longest = seq_length - 1 - template.length([asked, {"role": "assistant", "content": ""}])
    if longest < _LEAST_ANSWER:
        raise ValueError(f"{seq_length} tokens are too few for an answer in this chat template")
    folder.mkdir(parents=True, exist_ok=True)
    lines = list(_lines(text, samples, longest))
    (folder / PAIRS).write_text("".join(lines), encoding="utf-8")
    in_turn = strided(lines, job.batch.micro_batch_size, job.parallel.dp or 1)
    (folder / STRIDED_PAIRS).write_text("".join(in_turn), encoding="utf-8")


def _lines(text: str, samples: int, longest: int) -> Iterator[str]:
    at = 0

    def taken(size: int) -> str:
        # A template may strip spaces at the ends of a message.
        nonlocal at
        at += len(text[at:]) - len(text[at:].lstrip())
        found = text[at : at + size].rstrip()
        at += size
        return found

    for number in range(samples):
        if at > len(text):
            break
        lengths = (_LEAST_ANSWER + step * number % (longest - _LEAST_ANSWER + 1) for step in (5, 11))
        question, chosen, rejected = (taken(size) for size in (_QUESTION, *lengths))
        messages = [{"role": "user", "content": question}, {"role": "assistant", "content": chosen}]
        yield json.dumps({"messages": messages, "rejected_response": rejected}) + "\n"
    if at > len(text):
        raise ValueError(f"{samples} pairs exceed the shipped text of {len(text)} characters")


def read_pairs(folder: Path, model: Path, job: Job) -> list[Pair]:
    """Return the pairs in the order of the training, tokenized in the job's chat template.

    Raises:
        LookupError: the job's chat template is not known here.
    """
    from transformers import AutoTokenizer

    template = template_of(job)
    if template is None:
        raise LookupError(job.data.template or job.model.model_type or "none")
    tokenizer: Any = AutoTokenizer.from_pretrained(str(model))
    lines = (folder / PAIRS).read_text(encoding="utf-8").splitlines()

    def tokens(text: str) -> list[int]:
        return list(tokenizer(text, add_special_tokens=False)["input_ids"])

    def pair(line: Mapping[str, Any]) -> Pair:
        question, chosen = (each["content"] for each in line["messages"])
        # With thinking, the empty reasoning is a part of the answer.
        learned = job.data.enable_thinking is True
        before, answered = ("", template.thought) if learned else (template.thought, "")
        return Pair(
            prompt=tokens(template.head + template.question(question) + before),
            chosen=tokens(answered + chosen + TURN_END),
            rejected=tokens(answered + line["rejected_response"] + TURN_END),
        )

    return [pair(json.loads(line)) for line in lines]
