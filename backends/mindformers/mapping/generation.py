"""Rows of generation with legacy models, and of the tokenizer of its prompts."""

from collections.abc import Iterable, Mapping

from backends.mindformers.mapping.legacy import older
from backends.mindformers.mapping.support import key
from launcher.job import Job, Value, value_at
from launcher.mapping.rows import NativeView, Row, same

_PROMPTS = "processor.tokenizer."
# Keys of model.model_config of legacy models, read by generate() only (generation/generation_config.py @1.6.0).
_GENERATION = {
    "do_sample": "do_sample",
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "repetition_penalty": "repetition_penalty",
    "max_length": "max_decode_length",
    "use_cache": "use_past",
    "batch_size": "batch_size",
}
_TOKENIZER = {
    "vocab_file": "vocab_file",
    "merge_file": "merges_file",
    "bos_token": "bos_token",
    "eos_token": "eos_token",
    "pad_token": "pad_token",
    "unk_token": "unk_token",
}


def _token(name: str, native: str) -> Row:
    path, flag = f"tokenizer.{name}", f"{_PROMPTS}{native}"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        value = value_at(job, path)
        if value is not None:
            yield flag, value

    def read(view: NativeView) -> Mapping[str, Value]:
        return {path: view.take(flag)} if view.has(flag) and isinstance(view.peek(flag), str) else {}

    return Row(fields=(path,), flags=(flag,), emit=emit, read=read, note="of prompts; training reads tokenized data")


def generation_rows() -> tuple[Row, ...]:
    """Return the rows of generation with legacy models, and of the tokenizer of its prompts."""
    return (
        *(older(same(f"generation.{name}", key(native))) for name, native in _GENERATION.items()),
        *(older(_token(name, native)) for name, native in _TOKENIZER.items()),
    )
