"""Rows for data, tokenizer, generation and evaluation."""

from collections.abc import Iterable, Mapping

from backends.megatron.mapping.extra_args import padded_vocabulary
from backends.megatron.mapping.factories import FOUR, THREE, as_values, listed, set_default, single
from backends.megatron.mapping.model import is_described, source
from backends.megatron.mapping.options import option
from backends.megatron.mapping.task import COMMAND
from launcher.catalogue.versions import in_range
from launcher.job import Job, Value
from launcher.mapping.rows import NativeView, Row, Unsupported, same

_FILES = (".jsonl", ".json", ".csv", ".parquet", ".arrow", ".txt")
# Up to 3.5, 1 % of the samples become validation data by default.
_SPLITS_UNTIL = "3.5.99"
# Options of fields that Megatron-LM does not have.
_OPTIONS = {
    "data.num_preprocess": "dataset_num_proc",
    "data.streaming": "streaming",
    "data.lazy_tokenize": "lazy_tokenize",
    "data.system": "system",
    "data.enable_thinking": "enable_thinking",
    "data.shuffle_buffer_size": "shuffle_buffer_size",
}
_DRAWN = ("temperature", "top_k", "top_p", "repetition_penalty", "max_new_tokens")
GENERATION = tuple(f"generation.{name}" for name in _DRAWN)


def rows(version: str) -> Mapping[str, tuple[Row, ...]]:
    """Return the rows by the canonical field whose Megatron-LM rows they replace."""
    return {
        "data.paths": (
            _dataset(),
            _long_texts(),
            listed("data.validation_paths", "val_dataset"),
            _shuffle(),
            same("data.shuffle", "dataset_shuffle", until=THREE),
            *(row for path, name in _OPTIONS.items() for row in option(path, name, version)),
            _resets("data.reset_position_ids"),
            _resets("data.reset_attention_mask"),
            _single_value("data.self_cognition_author", "model_author"),
            _single_value("data.self_cognition_name", "model_name"),
            *(row for path, name in zip(GENERATION, _DRAWN, strict=True) for row in option(path, name, version)),
        ),
        "data.split": (_validation_ratio(version),),
        "tokenizer.type": (_tokenizer(version),),
        "tokenizer.padded_vocab_size": (_padded_vocabulary(version),),
        "evaluation.interval": option("evaluation.interval", "eval_interval", version),
        "evaluation.iters": option("evaluation.iters", "eval_iters", version),
    }


def _dataset() -> Row:
    refused = {
        "megatron": "it tokenizes by itself and reads no .bin/.idx files",
        "mock": "it has no mock data",
    }

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if job.data.format in refused:
            why = f"{refused[job.data.format]}: name text, messages or a hub data set"
            kinds = ("text", "hub") if job.task.type == "pretrain" else ("messages", "hub")
            raise Unsupported("data.format", why, tuple(f"data.format={kind}" for kind in kinds))
        if job.data.paths:
            yield "dataset", job.data.paths

    def read(view: NativeView) -> Mapping[str, Value]:
        if not view.has("dataset"):
            return {}
        paths = as_values(view.take("dataset"))
        if not any(str(path).split("#")[0].endswith(_FILES) for path in paths):
            return {"data.paths": paths, "data.format": "hub"}
        return {"data.paths": paths, "data.format": "text" if view.peek(COMMAND) == "pt" else "messages"}

    return Row(fields=("data.paths", "data.format"), flags=("dataset",), emit=emit, read=read)


def _long_texts() -> Row:
    """Return the row that splits texts longer than a sequence; by default swift drops them (`delete`)."""

    def cuts(view: NativeView) -> bool:
        paths = [str(path).split("#")[0] for path in as_values(view.peek("dataset", ()))]
        return view.peek(COMMAND) == "pt" and any(path.endswith(_FILES) for path in paths)

    def read(view: NativeView) -> Mapping[str, Value]:
        if cuts(view):
            if view.peek("truncation_strategy") == "split":
                view.take("truncation_strategy")
            set_default(view, "truncation_strategy", "delete")
        return {}

    return Row(
        fields=(),
        flags=("truncation_strategy",),
        emit=lambda job: (("truncation_strategy", "split"),),
        read=read,
        when=lambda job: job.data.format in ("text", "sample") and job.task.type == "pretrain",
        since="3.10",
        derived=True,
        note="the default drops texts longer than max_length (swift/arguments/base_args/template_args.py:167 @4.6.0)",
    )


def _validation_ratio(version: str) -> Row:
    splits = in_range(version, None, _SPLITS_UNTIL)

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        ratio = job.data.validation_ratio
        if ratio is None:
            ratio = _validation_share(job.data.split)
        if ratio is not None:
            yield "split_dataset_ratio", ratio
        elif splits and not job.data.validation_paths:
            yield "split_dataset_ratio", 0.0

    def read(view: NativeView) -> Mapping[str, Value]:
        if not splits:
            return {"data.validation_ratio": view.take("split_dataset_ratio")}
        default = None if view.peek("val_dataset") else 0.01
        return {"data.validation_ratio": view.take("split_dataset_ratio", default) or None}

    return Row(
        fields=("data.validation_ratio", "data.split"),
        flags=("split_dataset_ratio",),
        emit=emit,
        read=read,
        note="up to 3.5 the default takes 1 % of the training data, since 3.6 nothing",
    )


def _validation_share(split: str | None) -> float | None:
    """Return the validation share of Megatron's `train,validation,test` split; None without validation data."""
    if split is None:
        return None
    try:
        shares = [float(part) for part in split.split(",")]
    except ValueError:
        shares = []
    train, valid, test = [*shares, 0.0, 0.0, 0.0][:3]
    if not train or test:
        why = "swift splits into training and validation data only"
        raise Unsupported("data.split", why, ("data.split=null",))
    return valid / (train + valid) or None


def _shuffle() -> Row:
    flags = ("dataset_shuffle", "train_dataloader_shuffle")

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if job.data.shuffle is not None:
            yield from ((flag, job.data.shuffle) for flag in flags)

    def read(view: NativeView) -> Mapping[str, Value]:
        given = [view.peek(flag) for flag in flags]
        if given[0] is None or given[0] != given[1]:
            return {}
        for flag in flags:
            view.take(flag)
        return {"data.shuffle": given[0]}

    return Row(
        fields=("data.shuffle",),
        flags=flags,
        emit=emit,
        read=read,
        since=FOUR,
        note="samples are shuffled once when tokenized and again by the loader",
    )


def _resets(path: str) -> Row:
    """Samples of a packed sequence never attend to one another, and an unpacked sequence holds one sample."""

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        name = path.rpartition(".")[2]
        if getattr(job.data, name) is False and job.batch.packing:
            raise Unsupported(path, "samples of a packed sequence are always separated", (f"{path}=true",))
        return ()

    return Row(fields=(path,), flags=(), emit=emit)


def _single_value(path: str, flag: str) -> Row:
    def read(view: NativeView) -> Mapping[str, Value]:
        value = single(view.peek(flag))
        if not isinstance(value, str):  # one for Chinese and one for English data
            return {}
        view.take(flag)
        return {path: value}

    section, name = path.split(".")

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        value = getattr(getattr(job, section), name)
        if value is not None:
            yield flag, (value,)

    return Row(fields=(path,), flags=(flag,), emit=emit, read=read)


def _tokenizer(version: str) -> Row:
    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        path = job.tokenizer.path
        same_position = path is None or path in (job.model.path, job.model.hub_id)
        if not same_position and not is_described(job, version):
            raise Unsupported(
                "tokenizer.path",
                f"the tokenizer is read from the model's directory ({source(job) or 'none is named'})",
                (f"tokenizer.path={job.model.path or job.model.hub_id or 'null'}",),
            )
        return ()

    return Row(
        fields=("tokenizer.path",),
        flags=(),
        emit=emit,
        note="copied into the model's directory where the plan prepares that",
    )


def _padded_vocabulary(version: str) -> Row:
    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        padded = padded_vocabulary(job, version)
        if padded is not None:
            yield "padded_vocab_size", padded

    def read(view: NativeView) -> Mapping[str, Value]:
        return {"tokenizer.padded_vocab_size": view.take("padded_vocab_size")} if view.has("padded_vocab_size") else {}

    return Row(
        fields=("tokenizer.padded_vocab_size", "tokenizer.make_vocab_size_divisible_by", "model.vocab_size"),
        flags=("padded_vocab_size",),
        emit=emit,
        read=read,
        until=THREE,
    )
