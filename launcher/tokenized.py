"""Conversations as token numbers and labels, for backends that format no messages.

A sample is one JSON object a line: `input_ids` and `labels`, both as long as a sequence. `labels[i]` is the token to
predict at place i (already shifted), -100 where nothing is predicted: outside of answers, and after the end.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from launcher.outputs.kinds import Kind
from launcher.records import dataclass

IGNORED = -100
"""Label of a place where nothing is predicted, as in torch, transformers and MindFormers (ignore_token_id)."""


def _is_sample(path: Path) -> bool:
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.readline().startswith('{"input_ids": [')


FILE = Kind(title="a file of token numbers and labels", recognises=_is_sample, edited=False)


class CannotTokenize(ValueError):
    """A line cannot be tokenized: a sentence with its number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokenized:
    """What was written: samples, those cut at the end of the sequence, and predicted tokens."""

    samples: int
    cut: int
    predicted: int


def sample(tokens: Sequence[int], labels: Sequence[int], *, length: int, pad: int = 0) -> dict[str, list[int]]:
    """Return the line of a sample: shifted, cut and padded.

    Args:
        tokens: of the conversation, [tokens].
        labels: the same tokens where they are to be predicted, else -100, [tokens].
        length: tokens of a sequence.
        pad: token that fills it.
    """
    given, wanted = list(tokens[:length]), [*labels[1 : length + 1]]
    wanted += [IGNORED] * (len(given) - len(wanted))
    rest = length - len(given)
    return {"input_ids": given + [pad] * rest, "labels": wanted + [IGNORED] * rest}


def tokenize(source: Path, out: Path, tokenizer: Any, *, length: int, advanced: Callable[[int], None]) -> Tokenized:
    """Write every conversation of a JSONL file of `messages`, in the tokenizer's own chat template.

    Args:
        tokenizer: of transformers, with a chat template.
        length: tokens of a sequence.
        advanced: called with the number of lines done.

    Raises:
        CannotTokenize: a line has no messages, predicts nothing, or the template changes earlier turns afterwards.
        OSError: a file cannot be read or written.
    """
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id or 0
    done = cut = predicted = 0
    with out.open("w", encoding="utf-8") as file:
        for number, messages in _conversations(source):
            tokens, labels = _labelled(tokenizer, messages, f"{source}:{number}")
            line = sample(tokens, labels, length=length, pad=pad)
            answers = sum(label != IGNORED for label in line["labels"])
            if not answers:
                raise CannotTokenize(f"{source}:{number}: no token of an answer is within {length} tokens")
            file.write(json.dumps(line) + "\n")
            done, cut, predicted = done + 1, cut + (len(tokens) > length), predicted + answers
            advanced(done)
    if not done:
        raise CannotTokenize(f"{source}: no conversation")
    return Tokenized(samples=done, cut=cut, predicted=predicted)


def _conversations(source: Path) -> Iterator[tuple[int, Sequence[Mapping[str, Any]]]]:
    with source.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                messages = json.loads(line)["messages"]
                roles = [each["role"] for each in messages]
            except (ValueError, KeyError, TypeError):
                raise CannotTokenize(f"{source}:{number}: no JSON object with messages of role and content") from None
            if "assistant" not in roles:
                raise CannotTokenize(f"{source}:{number}: no message of the assistant: nothing to learn")
            yield number, messages


def _labelled(tokenizer: Any, messages: Sequence[Mapping[str, Any]], place: str) -> tuple[list[int], list[int]]:
    """Return tokens and labels; an answer is what the template adds to the turns before it and its own head."""

    def rendered(turns: Sequence[Mapping[str, Any]], *, head: bool) -> list[int]:
        made = tokenizer.apply_chat_template(turns, tokenize=True, return_dict=True, add_generation_prompt=head)
        return list(made["input_ids"])

    whole = rendered(messages, head=False)
    labels = [IGNORED] * len(whole)
    for index, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        before, after = rendered(messages[:index], head=True), rendered(messages[: index + 1], head=False)
        if whole[: len(after)] != after or after[: len(before)] != before:
            raise CannotTokenize(
                f"{place}: the chat template writes message {index + 1} differently once others follow, so that its "
                "tokens cannot be told; a conversation with one answer, or a template that keeps earlier turns, can"
            )
        labels[len(before) : len(after)] = after[len(before) :]
    return whole, labels
