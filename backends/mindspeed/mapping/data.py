"""MindSpeed-LLM mapping rows for tokenizer, data, packing and chat templates."""

from collections.abc import Collection, Iterable, Mapping

from backends.megatron_lm.mapping.data import read_files, write_files
from backends.megatron_lm.mapping.factories import when_set
from backends.megatron_lm.mapping.tokenizer import tokenizer_path
from backends.mindspeed.families import FAMILIES
from backends.mindspeed.mapping.task import stages
from backends.mindspeed.versions import accepts, choices
from launcher.job import Job, Value, output_dir
from launcher.mapping.rows import NativeView, Row, Unsupported, computed, switch
from launcher.nearest import nearest

# Megatron-LM's class, for which GPTDataset masks no padding, and MindSpeed-LLM's, for which it does.
_MEGATRON, _OWN = "HuggingFaceTokenizer", "PretrainedFromHF"


def tokenizer(old: bool) -> Row:
    """Return the row of the tokenizer; PretrainedFromHF has a separate path argument. `old`: the only one of both."""
    known = ("Llama2Tokenizer", "SentencePieceTokenizer", "TikTokenizer", *(() if old else (_MEGATRON,)))
    hugging_face = (_OWN, _MEGATRON)

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        path, kind = tokenizer_path(job), job.tokenizer.type
        if kind == "NullTokenizer" or (path is None and (kind is None or kind in hugging_face)):
            yield "tokenizer-type", "NullTokenizer"
            return
        if kind is None or (old and kind == _MEGATRON):
            kind = _OWN if old or not _is_read_by_megatron(job) else _MEGATRON
        if kind == _MEGATRON and job.tokenizer.trust_remote_code:
            why = "this class runs no code of the tokenizer's directory"
            raise Unsupported("tokenizer.type", why, (f"tokenizer.type={_OWN}",))
        yield "tokenizer-type", kind
        if path is not None:
            yield ("tokenizer-name-or-path" if kind == _OWN else "tokenizer-model"), path

    def read(view: NativeView) -> Mapping[str, Value]:
        kind = view.peek("tokenizer-type")
        if kind not in (*known, _OWN, "NullTokenizer"):
            return {}
        view.take("tokenizer-type")
        flag = "tokenizer-name-or-path" if kind == _OWN else "tokenizer-model"
        return {"tokenizer.type": kind, "tokenizer.path": view.take(flag)}

    return computed(
        (
            "tokenizer.type",
            "tokenizer.path",
            "model.path",
            "model.hub_id",
            "task.type",
            "data.format",
            "tokenizer.has_code",
            *(() if old else ("tokenizer.trust_remote_code",)),
        ),
        ("tokenizer-type", "tokenizer-name-or-path", "tokenizer-model"),
        emit,
        read,
        note="HuggingFaceTokenizer has no padding token: no end of a document is masked as padding.",
    )


def _is_read_by_megatron(job: Job) -> bool:
    """Return whether Megatron-LM's class of Hugging Face tokenizers does what this job needs.

    It runs no code of the tokenizer's directory and adds no tokens (megatron/training/tokenizer/tokenizer.py:125
    @core_v0.12.1), has no chat templates (mindspeed_llm/training/tokenizer/tokenizer.py:79 @26.1.0) and tokenizes no
    raw files (preprocess_data.py:173 @26.1.0).
    """
    needs_code = job.tokenizer.trust_remote_code or job.tokenizer.has_code
    tokenized = job.data.format in (None, "megatron", "mock", "sample")
    return job.task.type == "pretrain" and tokenized and not needs_code and not job.tokenizer.extra_ids


# Raw files are tokenized at start by a handler. Source: mindspeed_llm/tasks/preprocess/data_handler.py @26.1.0.
# The one for preference pairs reads another form of them: they are rewritten first (mindspeed/preference_pairs.py).
_PAIRS = "SharegptStylePairwiseHandler"
_HANDLERS = {
    ("pretrain", "text"): "GeneralPretrainHandler",
    ("sft", "messages"): "OpenAIInstructionHandler",
    ("dpo", "messages"): _PAIRS,
}


def rewrites_pairs(job: Job, version: str) -> bool:
    """Return whether the job's preference pairs are rewritten before the start."""
    pairs = job.task.type == "dpo" and job.data.format == "messages" and bool(job.data.paths)
    return pairs and accepts(version, "handler-name")


def pairs_file(job: Job) -> str:
    """Return the file of the rewritten preference pairs."""
    return f"{output_dir(job)}/pairs/pairs.jsonl"


def data_paths(raw: bool) -> Row:
    """Return the row of data files; without `raw` only files written by preprocess_data.py."""
    return computed(
        ("data.paths", "data.format", "data.validation_paths", "task.type", "output_dir", "name"),
        ("data-path", "train-data-path", "valid-data-path", "mock-data", *(("handler-name",) if raw else ())),
        lambda job: _write_paths(job, _HANDLERS if raw else {}),
        _read_paths,
        note=(
            "A raw file is tokenized at start by --handler-name, preference pairs after they were rewritten; prefixes "
            "of made files are taken as they are."
        ),
    )


def _write_paths(job: Job, handlers: Mapping[tuple[str, str], str]) -> Iterable[tuple[str, Value]]:
    kind = job.data.format
    if kind == "mock":
        yield "mock-data", True
        return
    handler = handlers.get((job.task.type, kind or ""))
    if kind not in (None, "megatron", "sample") and handler is None:
        readable = [form for stage, form in handlers if stage == job.task.type]
        raise Unsupported(
            "data.format",
            f"{kind} data is not read for {job.task.type}: tokenize it first (preprocess_data.py)",
            tuple(f"data.format={name}" for name in ("megatron", *readable)),
        )
    if handler == _PAIRS and job.data.paths:
        if job.data.validation_paths:
            why = "post-training reads one data set (decoder_packed_mtf_dataset.py:56 @26.1.0)"
            raise Unsupported("data.validation_paths", why, ("data.validation_paths=[]",))
        yield "data-path", (pairs_file(job),)
    else:
        yield from write_files(job)
    if handler is not None:
        yield "handler-name", handler


def _read_paths(view: NativeView) -> Mapping[str, Value]:
    if view.take("mock-data", False):
        return {"data.format": "mock"}
    found = read_files(view)
    stage = view.peek("stage") or "pretrain"
    forms = {handler: form for (kind, form), handler in _HANDLERS.items() if kind == stage and handler != _PAIRS}
    if view.peek("handler-name") in forms:
        found["data.format"] = forms[str(view.take("handler-name"))]
    elif found and not view.has("handler-name"):
        found["data.format"] = "megatron"
    return found


_LLAMA_3_VOCABULARY = 128256


def template(version: str, raw: bool) -> Row:
    """Return the row of the chat template; `raw`: chats are read as they are."""
    known, known_stages = choices(version, "prompt-type"), stages(version)

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if job.task.type == "pretrain":
            return
        if job.data.template is None and not (raw and job.data.format == "messages"):
            return
        row = FAMILIES.get(job.model.model_type or "")
        named = job.data.template or (None if row is None else row.template)
        if named is None and job.model.model_type == "llama":
            named = "llama3" if job.model.vocab_size == _LLAMA_3_VOCABULARY else "llama2"
        if named is None:
            raise Unsupported(
                "data.template", "chats need a template by name (--prompt-type)", ("data.template=qwen3",)
            )
        if named not in known:
            works = tuple(f"data.template={name}" for name in nearest(named, known, limit=2))
            raise Unsupported("data.template", f"it knows {', '.join(known)}", works)
        yield "prompt-type", named

    return computed(
        ("data.template", "model.model_type", "task.type"),
        ("prompt-type",),
        emit,
        lambda view: (
            {"data.template": view.take("prompt-type")}
            if view.has("prompt-type") and view.peek("stage") in known_stages
            else {}
        ),
        note="Raw chats need a template by name, so the family's is named where the user gave none.",
    )


def packing(raw: bool) -> Row:
    """Return the row of packed samples; `raw`: chats are packed while they are read."""

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if job.batch.packing is False and job.task.type == "pretrain":
            raise Unsupported("batch.packing", "token files are cut into full sequences", ("batch.packing=true",))
        if not job.batch.packing or job.task.type == "pretrain":
            return
        if raw and job.data.format == "messages":
            yield "pack", True
        yield "neat-pack", True

    def read(view: NativeView) -> Mapping[str, Value]:
        if not (view.peek("neat-pack") and view.peek("reset-attention-mask")):
            return {}
        view.take("neat-pack")
        if view.peek("handler-name") == _HANDLERS["sft", "messages"]:
            view.take("pack")
        return {"batch.packing": True}

    flags = ("pack", "neat-pack") if raw else ("neat-pack",)
    return computed(("batch.packing", "task.type", "data.format"), flags, emit, read)


def unpadded(flag: str, known_stages: Collection[str]) -> Row:
    """Return the row of micro-batches of different length, which only post-training has."""
    row, is_old = switch("batch.variable_seq_lengths", flag), flag == "variable-seq-lengths"

    def read(view: NativeView) -> Mapping[str, Value]:
        known = view.has(flag) and view.peek("stage") in known_stages
        return {row.fields[0]: bool(view.take(flag))} if known else {}

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if job.batch.variable_seq_lengths and job.task.type == "pretrain":
            why = "sequences of pre-training all have batch.seq_length"
            raise Unsupported("batch.variable_seq_lengths", why, ("batch.variable_seq_lengths=false",))
        if job.batch.variable_seq_lengths is None and not is_old and _sends_pairs(job):
            return ((flag, True),)
        return row.emit(job)

    if is_old:
        return Row(fields=row.fields, flags=row.flags, emit=emit, read=read)
    note = (
        "Also where stages of DPO exchange pairs, unless the field is false: their buffers have one sample (MS-DPO-PP)."
    )
    return computed((*row.fields, "task.type", "parallel.pp", "parallel.vpp"), row.flags, emit, read, note=note)


def _sends_pairs(job: Job) -> bool:
    """Return whether pipeline stages that are not interleaved exchange preferred and rejected answers."""
    return job.task.type == "dpo" and job.parallel.pp > 1 and (job.parallel.vpp or 1) == 1


def attention_mask() -> Row:
    """Return the row of attention within documents only, which packing requires."""

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        packed = job.batch.packing and job.task.type != "pretrain"
        if job.data.reset_attention_mask or packed:
            yield "reset-attention-mask", True

    def read(view: NativeView) -> Mapping[str, Value]:
        return {"data.reset_attention_mask": True} if view.take("reset-attention-mask", False) else {}

    return computed(
        ("data.reset_attention_mask", "batch.packing"),
        ("reset-attention-mask",),
        emit,
        read,
        note="--neat-pack refuses to go without it (training_basic.py:55 @26.1.0).",
    )


def workers() -> Row:
    """Return the row of the processes that tokenize raw files."""
    return when_set("data.num_preprocess", "workers")


def shuffle() -> Row:
    """Return the row of shuffling."""

    def read(view: NativeView) -> Mapping[str, Value]:
        return {"data.shuffle": False} if view.take("no-shuffle", False) else {}

    return Row(
        fields=("data.shuffle",),
        flags=("no-shuffle",),
        emit=lambda job: (("no-shuffle", True),) if job.data.shuffle is False else (),
        read=read,
    )


def thinking() -> Row:
    """Return the row of thinking mode in chats; the parser accepts the strings true and false."""
    path, flag = "data.enable_thinking", "enable-thinking"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if job.data.enable_thinking is not None:
            yield flag, "true" if job.data.enable_thinking else "false"

    def read(view: NativeView) -> Mapping[str, Value]:
        words = {"true": True, "false": False, "none": None}
        given = str(view.peek(flag)).lower()
        if not view.has(flag) or given not in words:
            return {}
        view.take(flag)
        return {path: words[given]}

    return Row(fields=(path,), flags=(flag,), emit=emit, read=read, note="features_manager/dataset/dataset.py:19")
