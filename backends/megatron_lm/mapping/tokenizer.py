"""Rows for the tokenizer, chat templates and the vocabulary."""

from collections.abc import Callable, Iterable, Mapping

from backends.megatron_lm.mapping.factories import (
    BEFORE_0_13,
    BEFORE_0_14,
    BEFORE_0_15,
    BEFORE_0_17,
    BEFORE_0_18,
    came,
    listed,
    when_set,
)
from backends.megatron_lm.sizes import VOCABULARY_SIZE
from launcher.job import Job, Value
from launcher.mapping.rows import Gap, NativeView, Row, Unsupported, computed, switch

# Default of pretrain_gpt.py: args_defaults, pretrain_gpt.py:326 @0.12.1, :347 @0.16.1.
TOKENIZER = "GPT2BPETokenizer"
# megatron/training/tokenizer/sft_tokenizer.py:45-63 @core_v0.16.1; identity and default came with core 0.17.
_FORMATS = ("nemotron-h-aligned", "nemotron-nano-v2")


def tokenizer() -> tuple[Row, ...]:
    """Return the rows of the tokenizer, its chat template, its extra tokens and the vocabulary."""
    return (
        tokenizer_class("0.13", None),
        tokenizer_class(None, BEFORE_0_13),
        when_set("tokenizer.vocab_file", "vocab-file"),
        when_set("tokenizer.merge_file", "merge-file"),
        switch("tokenizer.trust_remote_code", "trust-remote-code", since="0.15"),
        computed(
            ("data.template",),
            ("legacy-tokenizer", "sft-tokenizer-prompt-format"),
            _write_template,
            _read_template,
            when=lambda job: job.task.type == "sft",
            since="0.15",
            until=BEFORE_0_17,
            note="SFTTokenizer exists only in the legacy tokenizer system (megatron/training/tokenizer/tokenizer.py).",
        ),
        computed(
            ("data.template", "task.type"),
            ("sft-tokenizer-prompt-format",),
            _write_format(_FORMATS[0]),
            _read_template,
            when=lambda job: job.task.type == "sft",
            since="0.13",
            until=BEFORE_0_15,
        ),
        computed(
            ("data.template", "task.type"),
            ("sft-tokenizer-prompt-format",),
            _write_format(*_FORMATS, "identity", "default"),
            _read_template,
            when=lambda job: job.task.type == "sft",
            since="0.17",
            note="default: the template of the tokenizer's files.",
        ),
        when_set("tokenizer.extra_ids", "vocab-extra-ids"),
        when_set("tokenizer.tiktoken_pattern", "tiktoken-pattern"),
        listed("tokenizer.tiktoken_special_tokens", "tiktoken-special-tokens", until=BEFORE_0_18),
        listed("tokenizer.tiktoken_special_tokens", "tokenizer-special-tokens", since="0.18"),
        when_set("tokenizer.tiktoken_num_special_tokens", "tiktoken-num-special-tokens"),
        *vocabulary(),
    )


def tokenizer_class(since: str | None, until: str | None) -> Row:
    """Return the row of the tokenizer's class and path; with `until` None, --sft uses SFTTokenizer."""
    has_sft = until is None

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        kind, path = tokenizer_kind(job), tokenizer_path(job)
        yield "tokenizer-type", "SFTTokenizer" if has_sft and job.task.type == "sft" else kind
        if kind != "NullTokenizer" and path is not None:
            yield "tokenizer-model", path

    return computed(
        ("tokenizer.type", "tokenizer.path", "model.path", "model.hub_id"),
        ("tokenizer-type", "tokenizer-model"),
        emit,
        _read_tokenizer,
        since=since,
        until=until,
        note="Without any tokenizer the data files contain token ids: NullTokenizer.",
    )


def tokenizer_path(job: Job) -> str | None:
    """Return the tokenizer's path, else the model's path or hub id."""
    return job.tokenizer.path or job.model.path or job.model.hub_id


def tokenizer_kind(job: Job) -> str:
    """Return Megatron's name of the tokenizer class for this job."""
    passed = job.backend.passthrough.get("tokenizer-type")
    if passed is not None:
        return str(passed)
    if job.tokenizer.type not in (None, "PretrainedFromHF"):  # MindSpeed-LLM's class of the same tokenizers
        return job.tokenizer.type
    return "HuggingFaceTokenizer" if tokenizer_path(job) else "NullTokenizer"


def _read_tokenizer(view: NativeView) -> Mapping[str, Value]:
    known = ("HuggingFaceTokenizer", "NullTokenizer", "Llama2Tokenizer", "SentencePieceTokenizer", "TikTokenizer")
    found: dict[str, Value] = {}
    view.values.setdefault("tokenizer-type", TOKENIZER)  # the default has no canonical value
    if view.peek("tokenizer-type") in (*known, "SFTTokenizer"):
        kind = view.take("tokenizer-type")
        found["tokenizer.type"] = kind if kind in known else None
        if view.has("tokenizer-model"):
            found["tokenizer.path"] = view.take("tokenizer-model")
    return found


def _write_format(*known: str) -> Callable[[Job], Iterable[tuple[str, Value]]]:
    """Return what writes the format of conversations, one of those that a version knows."""

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if job.data.template not in known:
            why = f"--sft knows {len(known)} chat templates only"
            raise Unsupported("data.template", why, tuple(f"data.template={name}" for name in known))
        yield "sft-tokenizer-prompt-format", job.data.template

    return emit


def _write_template(job: Job) -> Iterable[tuple[str, Value]]:
    yield "legacy-tokenizer", True
    yield from _write_format(*_FORMATS)(job)


def _read_template(view: NativeView) -> Mapping[str, Value]:
    if not view.peek("sft"):
        return {}
    if view.has("legacy-tokenizer"):
        view.take("legacy-tokenizer")
    return {"data.template": view.take("sft-tokenizer-prompt-format", "nemotron-h-aligned")}


_PADDING = (
    "tokenizer.padded_vocab_size",
    "tokenizer.make_vocab_size_divisible_by",
    "model.vocab_size",
    "parallel.tp",
)


def vocabulary() -> tuple[Row, ...]:
    """Return the rows of the vocabulary; its size is config.json's, independent of the tokenizer."""
    return (
        computed(
            ("model.vocab_size", "tokenizer.type"),
            ("vocab-size",),
            _write_vocabulary,
            _read_vocabulary,
            note="NullTokenizer adds one for the end of a document, which must be a row of the embedding too.",
        ),
        padding(since="0.14"),
        computed(
            _PADDING,
            ("make-vocab-size-divisible-by",),
            _write_divisor,
            _read_divisor,
            until=BEFORE_0_14,
            note="No argument sets the padded size; a divisor of that size over tp gives it for any smaller tokenizer.",
        ),
    )


def _write_vocabulary(job: Job) -> Iterable[tuple[str, Value]]:
    size = job.model.vocab_size
    if size is not None:
        yield "vocab-size", size - VOCABULARY_SIZE.added.get(tokenizer_kind(job), 0)


def _read_vocabulary(view: NativeView) -> Mapping[str, Value]:
    if not view.has("vocab-size") or not pads_as_we_do(view):
        return {}
    return {"model.vocab_size": view.take("vocab-size") + VOCABULARY_SIZE.added.get(view.peek("tokenizer-type"), 0)}


def pads_as_we_do(view: NativeView) -> bool:
    """Return whether the arguments alone, without the tokenizer, ensure at least --vocab-size embedding rows."""
    if view.has("padded-vocab-size"):
        return True
    divisor = view.peek("make-vocab-size-divisible-by") or 0
    return bool(divisor * view.peek("tensor-model-parallel-size", 1) >= view.peek("vocab-size", 0) > 0)


def padded_vocabulary(job: Job) -> int | None:
    """Return the rows of the embedding: given, or the vocabulary padded to the divisor (else 1) times tp."""
    if job.tokenizer.padded_vocab_size is not None or job.model.vocab_size is None:
        return job.tokenizer.padded_vocab_size
    multiple = (job.tokenizer.make_vocab_size_divisible_by or 1) * job.parallel.tp
    return -(-job.model.vocab_size // multiple) * multiple


def padding(since: str | None = None) -> Row:
    """Return the row of the padded vocabulary size, where an argument sets it."""
    return computed(
        _PADDING,
        ("make-vocab-size-divisible-by", "padded-vocab-size"),
        _write_padding,
        _read_padding,
        since=since,
        note="config.json's size, padded only to a multiple of tp: the same rows as in Hugging Face at any layout.",
    )


def _write_padding(job: Job) -> Iterable[tuple[str, Value]]:
    if job.tokenizer.make_vocab_size_divisible_by is not None:
        yield "make-vocab-size-divisible-by", job.tokenizer.make_vocab_size_divisible_by
    size = padded_vocabulary(job)
    if size is not None:
        yield "padded-vocab-size", size


def _read_padding(view: NativeView) -> Mapping[str, Value]:
    return {
        "tokenizer.padded_vocab_size": view.take("padded-vocab-size"),
        "tokenizer.make_vocab_size_divisible_by": view.take("make-vocab-size-divisible-by"),
    }


def _write_divisor(job: Job) -> Iterable[tuple[str, Value]]:
    size = padded_vocabulary(job)
    if size is None:
        if job.tokenizer.make_vocab_size_divisible_by is not None:
            yield "make-vocab-size-divisible-by", job.tokenizer.make_vocab_size_divisible_by
        return
    if size % job.parallel.tp:
        raise Unsupported("tokenizer.padded_vocab_size", f"it must be a multiple of tp={job.parallel.tp}")
    yield "make-vocab-size-divisible-by", size // job.parallel.tp


def _read_divisor(view: NativeView) -> Mapping[str, Value]:
    divisor, size = view.peek("make-vocab-size-divisible-by"), view.peek("vocab-size")
    rows = (divisor or 0) * view.peek("tensor-model-parallel-size", 1)
    if size and size <= rows:
        view.take("make-vocab-size-divisible-by")
        return {"tokenizer.padded_vocab_size": rows}
    return {"tokenizer.make_vocab_size_divisible_by": view.take("make-vocab-size-divisible-by")}


CAME_LATER: Mapping[str, Gap] = {
    "tokenizer.trust_remote_code": came(False, severity="warning"),
    "data.template": came(why="this version trains on token files only"),
}
