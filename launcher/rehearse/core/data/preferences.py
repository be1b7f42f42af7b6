"""Pairs of answers to one prompt, the better one first."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from launcher.rehearse.core.data.samples import MessageSamples
from launcher.rehearse.core.data.tokenizer import TextTokenizer
from launcher.rehearse.core.errors import RehearsalError
from launcher.rehearse.sample_data import MESSAGES, PAIRS, record_files

_FORMS = (
    '{"messages", "rejected_response"}, {"messages", "rejected_messages"} (Megatron-SWIFT) or {"prompt", "chosen", '
    '"rejected"} (TRL)'
)

Turns = list[dict[str, str]]
Pair = tuple[Turns, Turns]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PreferenceSamples:
    """A pair per sample: arrays with a leading dimension of 2, chosen and rejected; the loss covers the last turn."""

    chosen: MessageSamples
    rejected: MessageSamples

    def __len__(self) -> int:
        return len(self.chosen)

    def get(self, index: int) -> tuple[Any, Any]:
        import numpy

        both = (self.chosen.get(index), self.rejected.get(index))
        return numpy.stack([tokens for tokens, _ in both]), numpy.stack([mask for _, mask in both])


def preference_samples(paths: tuple[str, ...], tokenizer: TextTokenizer, seq_length: int) -> PreferenceSamples:
    """Read the pairs of JSONL files; without files, pairs of the text that ships with the project."""
    pairs = list(_read(paths) if paths else _bundled())
    chosen, rejected = (
        MessageSamples(
            conversations=tuple(_last_turn(tokenizer, pair[side]) for pair in pairs),
            seq_length=seq_length,
            padding=tokenizer.eod,
        )
        for side in (0, 1)
    )
    return PreferenceSamples(chosen=chosen, rejected=rejected)


def bundled_conversations() -> list[Turns]:
    """Return conversations made of the shipped text: the beginning of a paragraph, and how it goes on."""
    return [_checked(record["messages"]) for record in record_files()[MESSAGES]]


def _bundled() -> Iterator[Pair]:
    yield from map(_swift, record_files()[PAIRS])


def _last_turn(tokenizer: TextTokenizer, turns: Turns) -> tuple[list[int], list[bool]]:
    """Tokenize a conversation; the loss covers its last turn, the prompt is the same on both sides."""
    prompt, _ = tokenizer.encode_messages(turns[:-1])
    answer, learned = tokenizer.encode_messages(turns[-1:])
    return [*prompt, *answer], [*([False] * len(prompt)), *learned]


def _read(paths: Sequence[str]) -> Iterator[Pair]:
    for path in paths:
        try:
            lines = Path(path).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise RehearsalError(f"{path}: {getattr(error, 'strerror', None) or 'not UTF-8 text'}") from error
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield _pair(line, f"{path}:{number}")


def _pair(line: str, where: str) -> Pair:
    try:
        record = json.loads(line)
        pair = _swift(record) if "messages" in record else _trl(record)
    except (json.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise RehearsalError(f"{where}: no pair of answers there; works: one JSON object a line: {_FORMS}") from error
    return pair


def _swift(record: Mapping[str, Any]) -> Pair:
    chosen = _checked(record["messages"])
    if "rejected_messages" in record:
        return chosen, _checked(record["rejected_messages"])
    return chosen, [*chosen[:-1], _checked([{"role": "assistant", "content": record["rejected_response"]}])[0]]


def _trl(record: Mapping[str, Any]) -> Pair:
    prompt, chosen, rejected = record["prompt"], record["chosen"], record["rejected"]
    if isinstance(prompt, str):
        return _turns(prompt, chosen), _turns(prompt, rejected)
    return _checked([*prompt, *chosen]), _checked([*prompt, *rejected])


def _turns(prompt: str, answer: str) -> Turns:
    return _checked([{"role": "user", "content": prompt}, {"role": "assistant", "content": answer}])


def _checked(turns: Any) -> Turns:
    if not turns or turns[-1]["role"] != "assistant":
        raise ValueError("the last turn is not the assistant's")
    if not all(isinstance(turn[name], str) for turn in turns for name in ("role", "content")):
        raise TypeError("a turn is not text")
    return list(turns)
