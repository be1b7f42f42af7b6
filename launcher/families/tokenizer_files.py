"""Facts about a tokenizer that its files on this machine state, without loading it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from launcher.job import Job, Origin, Value
from launcher.job.derive import with_values

# Padding and end-of-text tokens of classes, where the files name none; other classes: not known.
# Source: transformers 4.57 tokenization_*.py, the defaults of __init__.
_CLASSES: Mapping[str, tuple[str | None, str | None]] = {
    "PreTrainedTokenizerFast": (None, None),
    "TokenizersBackend": (None, None),
    "LlamaTokenizer": (None, "</s>"),
    "LlamaTokenizerFast": (None, "</s>"),
    "GPT2Tokenizer": (None, "<|endoftext|>"),
    "GPT2TokenizerFast": (None, "<|endoftext|>"),
    "Qwen2Tokenizer": ("<|endoftext|>", "<|endoftext|>"),
    "Qwen2TokenizerFast": ("<|endoftext|>", "<|endoftext|>"),
}


# What a tokenizer is loaded from, one of these at least.
_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "tokenizer_config.json")


def has_tokenizer(path: str) -> bool:
    """Return whether the directory is on this machine and has files of a tokenizer."""
    folder = Path(path).expanduser()
    return any((folder / name).is_file() for name in _FILES)


def with_tokenizer_files(job: Job) -> Job:
    """Return the job with `tokenizer.pad_is_eos` and `tokenizer.has_code` of the tokenizer's directory, if it exists.

    What the job states is kept.
    """
    path = job.tokenizer.path or job.model.path
    if path is None:
        return job
    folder = Path(path).expanduser()
    found = {f"tokenizer.{name}": value for name, value in _facts(folder).items()}
    values = {path: value for path, value in found.items() if getattr(job.tokenizer, path[10:]) is None}
    return with_values(job, values, Origin(kind="derived", where=str(folder))) if values else job


def _facts(folder: Path) -> dict[str, Value]:
    """Return what the files say; what they leave open is missing."""
    try:
        config = _loaded(folder / "tokenizer_config.json")
        named = {**_loaded(folder / "special_tokens_map.json"), **config}
        facts: dict[str, Value] = {"has_code": "auto_map" in config} if config else {}
        same = _same_token(named) if config else _same_id(_loaded(folder / "config.json"))
    except (OSError, ValueError, RecursionError):
        return {}
    return facts if same is None else {**facts, "pad_is_eos": same}


def _same_token(named: Mapping[str, Any]) -> bool | None:
    pad, eos = (_text(named[name]) if name in named else ... for name in ("pad_token", "eos_token"))
    known = _CLASSES.get(str(named.get("tokenizer_class")))
    if known is not None:
        pad, eos = known[0] if pad is ... else pad, known[1] if eos is ... else eos
    if pad is None:
        return True
    return None if ... in (pad, eos) else pad == eos


def _text(token: Any) -> str | None:
    """Return a token's text; AddedToken is stored as a mapping."""
    text = token.get("content") if isinstance(token, Mapping) else token
    return None if text is None else str(text)


def _same_id(config: Mapping[str, Any]) -> bool | None:
    """Return whether config.json has one id for both; it does not tell whether the tokenizer has a padding token."""
    pad, eos = config.get("pad_token_id"), config.get("eos_token_id")
    if pad is None or eos is None:
        return None
    return pad in eos if isinstance(eos, list) else bool(pad == eos)


def _loaded(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    found = json.loads(file.read_text(encoding="utf-8"))
    return found if isinstance(found, dict) else {}
