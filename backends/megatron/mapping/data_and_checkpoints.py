"""Rows for data, tokenizer, checkpoints, logging, evaluation and fault tolerance."""

from collections.abc import Iterable, Mapping

from backends.megatron.mapping.extra_args import padded_vocabulary
from backends.megatron.mapping.factories import (
    FOUR,
    THREE,
    explicit,
    listed,
    only,
    renamed,
    single,
    spell_out,
    words,
)
from backends.megatron.mapping.model import from_pretrained, is_described, source
from backends.megatron.mapping.sharding import format_row
from backends.megatron.mapping.training import COMMAND
from launcher.catalogue.versions import in_range
from launcher.job import Job, Value
from launcher.mapping.rows import NativeView, Row, Unsupported, mapped, same

_FILES = (".jsonl", ".json", ".csv", ".parquet", ".arrow", ".txt")
# Up to 3.5, 1 % of the samples become validation data by default.
_SPLITS_UNTIL = "3.5.99"


def data_rows(version: str) -> tuple[Row, ...]:
    """Return the rows of sections `data` and `tokenizer`."""
    return (
        _dataset(),
        _long_texts(),
        listed("data.validation_paths", "val_dataset"),
        _validation_ratio(version),
        *renamed("data.num_workers", "num_workers", "dataloader_num_workers"),
        same("data.num_preprocess", "dataset_num_proc"),
        _shuffle(),
        same("data.shuffle", "dataset_shuffle", until=THREE),
        same("data.streaming", "streaming"),
        same("data.lazy_tokenize", "lazy_tokenize"),
        _resets("data.reset_position_ids"),
        _resets("data.reset_attention_mask"),
        same("data.system", "system"),
        _one_word("data.self_cognition_author", "model_author"),
        _one_word("data.self_cognition_name", "model_name"),
        _tokenizer(version),
        _padded_vocabulary(version),
    )


def _dataset() -> Row:
    refused = {
        "megatron": "it tokenizes by itself and reads no .bin/.idx files",
        "mock": "it has no mock data",
    }

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if job.data.format in refused:
            raise Unsupported("data.format", f"{refused[job.data.format]}: name text, messages or a hub data set")
        if job.data.paths:
            yield "dataset", job.data.paths

    def read(view: NativeView) -> Mapping[str, Value]:
        if not view.has("dataset"):
            return {}
        paths = words(view.take("dataset"))
        if not any(str(path).split("#")[0].endswith(_FILES) for path in paths):
            return {"data.paths": paths, "data.format": "hub"}
        return {"data.paths": paths, "data.format": "text" if view.peek(COMMAND) == "pt" else "messages"}

    return Row(fields=("data.paths", "data.format"), flags=("dataset",), emit=emit, read=read)


def _long_texts() -> Row:
    """Return the row that splits texts longer than a sequence; by default swift drops them (`delete`)."""

    def cuts(view: NativeView) -> bool:
        paths = [str(path).split("#")[0] for path in words(view.peek("dataset", ()))]
        return view.peek(COMMAND) == "pt" and any(path.endswith(_FILES) for path in paths)

    def read(view: NativeView) -> Mapping[str, Value]:
        if cuts(view):
            if view.peek("truncation_strategy") == "split":
                view.take("truncation_strategy")
            spell_out(view, "truncation_strategy", "delete")
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
            raise Unsupported(path, "samples of a packed sequence are always kept apart", (f"{path}=true",))
        return ()

    return Row(fields=(path,), flags=(), emit=emit)


def _one_word(path: str, flag: str) -> Row:
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
        same_place = path is None or path in (job.model.path, job.model.hub_id)
        if not same_place and not is_described(job, version):
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


def checkpoint_rows(version: str) -> tuple[Row, ...]:
    """Return the rows of section `checkpoint`, except `checkpoint.load` (see `model_rows`)."""
    always = "it writes torch_dist checkpoints only"
    return (
        _finetune(version),
        *renamed("checkpoint.save", "save", "output_dir", note="swift adds v<k>-<time> below it (add_version)"),
        *renamed("checkpoint.save_interval", "save_interval", "save_steps"),
        mapped(
            "checkpoint.format",
            "ckpt_format",
            _torch_format,
            lambda value: value,
            until=THREE,
            note="safetensors: checkpoint.save_safetensors, since 3.10",
        ),
        only(
            "checkpoint.format", ("torch_dist",), always, ("checkpoint.format=torch_dist",), since=FOUR, until="4.5.99"
        ),
        format_row(),
        same("checkpoint.save_safetensors", "save_safetensors", since="3.10"),
        same("checkpoint.save_total_limit", "save_total_limit", since=FOUR),
        same("checkpoint.async_save", "async_save", since="3.7"),
        same("checkpoint.no_save_optim", "no_save_optim"),
        same("checkpoint.no_save_rng", "no_save_rng"),
        same("checkpoint.no_load_optim", "no_load_optim"),
        same("checkpoint.no_load_rng", "no_load_rng"),
        same("checkpoint.optimizer_fully_reshardable", "dist_ckpt_optim_fully_reshardable", since=FOUR),
        same("checkpoint.exit_on_missing", "exit_on_missing_checkpoint", until=THREE),
        only(
            "checkpoint.exit_on_missing",
            (True,),
            "4.x always stops when the checkpoint is missing",
            ("checkpoint.exit_on_missing=true",),
            since=FOUR,
        ),
    )


def _torch_format(value: str) -> str:
    if value not in ("torch_dist", "torch", "zarr"):
        why = "a training checkpoint is of torch_dist, torch or zarr"
        raise Unsupported("checkpoint.format", why, ("checkpoint.format=torch_dist",))
    return value


def _finetune(version: str) -> Row:
    """Return the row of finetune, written explicitly: its default changed from false to true at 4.0."""
    default = in_range(version, FOUR, None)

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        value = job.checkpoint.finetune
        if value is None:
            value = job.checkpoint.load is None
        if value or job.checkpoint.load is not None or from_pretrained(job) or default:
            yield "finetune", value

    def read(view: NativeView) -> Mapping[str, Value]:
        value = view.take("finetune", default)
        resumes = view.peek("mcore_model" if default else "load") is not None
        converted = f"{str(view.peek('model')).rsplit('/', 1)[-1]}-mcore"
        if in_range(version, None, "3.9") and view.peek("load") == converted:
            resumes = False
        return {} if value is not resumes else {"checkpoint.finetune": value}

    return Row(
        fields=("checkpoint.finetune", "checkpoint.load"),
        flags=("finetune",),
        emit=emit,
        read=read,
        note="not given: a named checkpoint is resumed, the weights of a model are a new start",
    )


def logging_rows() -> tuple[Row, ...]:
    """Return the rows of sections `logging`, `evaluation` and `fault_tolerance`."""
    return (
        explicit("logging.interval", "log_interval", 5, until=THREE),
        explicit("logging.interval", "logging_steps", 5, since=FOUR),
        same("logging.tensorboard_dir", "tensorboard_dir"),
        same("logging.wandb_project", "wandb_project", until="3.9"),
        _wandb(),
        same("logging.wandb_name", "wandb_exp_name"),
        same("logging.throughput", "log_throughput", until=THREE),
        same("logging.params_norm", "log_params_norm", until=THREE),
        same("logging.timers", "log_timers_to_tensorboard", until=THREE),
        same("logging.memory", "log_memory_to_tensorboard", until=THREE),
        same("logging.perplexity", "log_validation_ppl_to_tensorboard", until=THREE),
        *renamed("evaluation.interval", "eval_interval", "eval_steps"),
        same("evaluation.iters", "eval_iters"),
        _timeout(),
    )


def _timeout() -> Row:
    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if job.fault_tolerance.timeout_minutes is not None:
            yield "ddp_timeout", job.fault_tolerance.timeout_minutes * 60

    def read(view: NativeView) -> Mapping[str, Value]:
        if not view.has("ddp_timeout") or view.peek("ddp_timeout") % 60:
            return {}
        return {"fault_tolerance.timeout_minutes": view.take("ddp_timeout") // 60}

    return Row(
        fields=("fault_tolerance.timeout_minutes",),
        flags=("ddp_timeout",),
        emit=emit,
        read=read,
        note="seconds; in 3.x it overrides distributed_timeout_minutes (megatron_args.py, __post_init__)",
    )


def _wandb() -> Row:
    """Events go to W&B only when `report_to` names it; TensorBoard stays on."""
    reports = ("tensorboard", "wandb")

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if job.logging.wandb_project is not None:
            yield "report_to", reports
            yield "wandb_project", job.logging.wandb_project

    def read(view: NativeView) -> Mapping[str, Value]:
        if tuple(sorted(words(view.peek("report_to", ())))) != reports:
            return {}
        view.take("report_to")
        return {"logging.wandb_project": view.take("wandb_project", "megatron-swift")}

    return Row(
        fields=("logging.wandb_project",),
        flags=("report_to", "wandb_project"),
        emit=emit,
        read=read,
        since="3.10",
    )
