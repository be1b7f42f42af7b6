"""Training samples of a fixed length, cut from text or conversations."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any, Protocol

from launcher.rehearse.core.data.tokenizer import TextTokenizer
from launcher.rehearse.core.errors import RehearsalError


class Samples(Protocol):
    """Samples by index; the sample of an index never depends on the layout."""

    def __len__(self) -> int: ...

    def get(self, index: int) -> tuple[Any, Any]:
        """Return tokens (int64 [seq_length + 1]) and loss mask (float32 [seq_length]) of a sample."""
        ...


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StreamSamples:
    """Consecutive windows of one long stream of tokens."""

    tokens: Any
    """numpy int64 [count]."""
    seq_length: int
    eod: int | None = None
    """Mask the loss of the token after this one (--eod-mask-loss); None: no masking."""

    def __len__(self) -> int:
        return max(0, (len(self.tokens) - 1) // self.seq_length)

    def get(self, index: int) -> tuple[Any, Any]:
        import numpy

        start = index * self.seq_length
        window = self.tokens[start : start + self.seq_length + 1]
        mask: Any = numpy.ones(self.seq_length, dtype=numpy.float32)
        if self.eod is not None:
            mask[window[:-1] == self.eod] = 0.0
        return window, mask


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MessageSamples:
    """One conversation per sample, padded or truncated at the end; the loss covers assistant turns only."""

    conversations: tuple[tuple[list[int], list[bool]], ...]
    seq_length: int
    padding: int

    def __len__(self) -> int:
        return len(self.conversations)

    def get(self, index: int) -> tuple[Any, Any]:
        import numpy

        tokens, learned = self.conversations[index]
        length = min(len(tokens), self.seq_length + 1)
        window: Any = numpy.full(self.seq_length + 1, self.padding, dtype=numpy.int64)
        window[:length] = tokens[:length]
        mask: Any = numpy.zeros(self.seq_length, dtype=numpy.float32)
        mask[: length - 1] = learned[1:length]
        return window, mask


def bundled_text() -> str:
    """Return the public-domain text that ships with the project."""
    return resources.files("launcher.rehearse.assets").joinpath("moby_dick.txt").read_text(encoding="utf-8")


def read_records(paths: tuple[str, ...], key: str) -> Iterator[Any]:
    """Yield `record[key]` of every line of JSONL files; RehearsalError names file and line."""
    if not paths:
        raise RehearsalError(f"data of kind {'text' if key == 'text' else 'messages'} needs at least one path")
    for path in paths:
        try:
            lines = Path(path).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise RehearsalError(f"{path}: {getattr(error, 'strerror', None) or 'not UTF-8 text'}") from error
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                yield _value(json.loads(line), key)
            except (json.JSONDecodeError, ValueError) as error:
                raise RehearsalError(f"{path}:{number}: {error}; works: one JSON object a line with {key!r}") from error


def _value(record: Any, key: str) -> Any:
    value = record.get(key) if isinstance(record, dict) else None
    if key == "text" and isinstance(value, str):
        return value
    if key == "messages" and isinstance(value, list) and value and all(_is_message(message) for message in value):
        return value
    raise ValueError(f"no {key!r} there, or not of the right form")


def _is_message(message: Any) -> bool:
    return isinstance(message, dict) and all(isinstance(message.get(name), str) for name in ("role", "content"))


def text_stream(texts: Iterator[str], tokenizer: TextTokenizer) -> Any:
    """Join documents to one stream of tokens, each ended by the end-of-document token."""
    import numpy

    tokens: list[int] = []
    for text in texts:
        tokens += tokenizer.encode(text)
        tokens.append(tokenizer.eod)
    return numpy.array(tokens, dtype=numpy.int64)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MadeUpSamples:
    """Arbitrary token ids, where only shapes matter."""

    seq_length: int
    vocabulary: int

    def __len__(self) -> int:
        return 1 << 40

    def get(self, index: int) -> tuple[Any, Any]:
        import numpy

        tokens: Any = (numpy.arange(self.seq_length + 1) * 7 + index * 13) % self.vocabulary
        return tokens, numpy.ones(self.seq_length, dtype=numpy.float32)
