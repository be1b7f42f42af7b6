"""Tokenizes text with a local tokenizer directory, through the `tokenizers` package only."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from launcher.rehearse.core.errors import RehearsalError

_FILE = "tokenizer.json"


def bundled_directory() -> Path:
    """Return the tokenizer directory that ships with the project: bytes as tokens, 259 in all."""
    return Path(str(resources.files("launcher.rehearse.assets").joinpath("tokenizer")))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TextTokenizer:
    """A tokenizer with the few special tokens that training needs."""

    engine: Any
    size: int
    eod: int
    """The token between documents, and the padding after a conversation."""

    def encode(self, text: str) -> list[int]:
        """Return the tokens of `text`, without adding special tokens."""
        tokens: list[int] = self.engine.encode(text, add_special_tokens=False).ids
        return tokens

    def encode_messages(self, messages: Sequence[Mapping[str, str]]) -> tuple[list[int], list[bool]]:
        """Render a conversation in ChatML; the second list is True where a token belongs to an assistant's answer.

        Each turn is `<|im_start|>ROLE\\nCONTENT<|im_end|>\\n`; the loss covers the content of assistant turns and all
        that ends them, as Megatron-SWIFT's (chatml, last turn) and MindSpeed-LLM's (qwen_lf) templates do.
        """
        tokens: list[int] = []
        learned: list[bool] = []
        for message in messages:
            answer = message["role"] == "assistant"
            parts = (
                (f"<|im_start|>{message['role']}\n", False),
                (f"{message['content']}<|im_end|>", answer),
                ("\n", answer),
            )
            for text, learn in parts:
                ids = self.encode(text)
                tokens += ids
                learned += [learn] * len(ids)
        return tokens, learned


def has_tokenizer(directory: str) -> bool:
    """Return whether a directory has a tokenizer that `load` reads."""
    return (Path(directory).expanduser() / _FILE).is_file()


def load(directory: str | None) -> TextTokenizer:
    """Load the tokenizer of a directory (None: the bundled one); RehearsalError names what is missing."""
    path = Path(directory).expanduser() if directory else bundled_directory()
    file = path / _FILE
    if not file.is_file():
        raise RehearsalError(
            f"{path}: no tokenizer.json there; works: a directory with a fast tokenizer (tokenizer.json)"
        )
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise RehearsalError("the package tokenizers is missing; works: pip install tokenizers") from error
    engine = Tokenizer.from_file(str(file))
    size = max(engine.get_vocab(with_added_tokens=True).values()) + 1
    return TextTokenizer(engine=engine, size=size, eod=_end_of_document(path, engine))


def _named(path: Path, key: str) -> str | None:
    """Return a special token of tokenizer_config.json."""
    file = path / "tokenizer_config.json"
    token = json.loads(file.read_text(encoding="utf-8")).get(key) if file.is_file() else None
    return token.get("content") if isinstance(token, dict) else token


def _end_of_document(path: Path, engine: Any) -> int:
    """Return the token that ends a document: the `eos_token`, as for Megatron-LM's HuggingFaceTokenizer."""
    for name in (_named(path, "eos_token"), "<|endoftext|>", "</s>", "<|end_of_text|>"):
        token = engine.token_to_id(name) if name else None
        if token is not None:
            return int(token)
    return 0
