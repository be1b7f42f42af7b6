"""Rows of the data pipeline after the loader: sample order, workers, batches, end-of-document tokens."""

from collections.abc import Iterable, Mapping

from backends.mindformers.mapping.loader import CONFIG, LOADER, MEGATRON, is_megatron
from backends.mindformers.mapping.support import always_written, drop, follows, is_file
from launcher.job import Job, Value
from launcher.mapping.rows import NativeView, Row, mapped, same

_SECTION = "train_dataset."


def seed_row() -> Row:
    """Return the row of the job's seed, which defaults to 1 in a file (template.py @2.1.0)."""

    def read(view: NativeView) -> Mapping[str, Value]:
        if view.has("seed"):
            return {"seed": view.take("seed")}
        return {"seed": 1} if is_file(view) else {}

    return Row(
        fields=("seed",),
        flags=("seed",),
        emit=lambda job: (("seed", job.seed),),
        read=read,
        note="in semi-automatic mode the trainer seeds data only (trainer/trainer.py:296 @2.1.0)",
    )


def _order() -> Row:
    flag, path = f"{CONFIG}seed", "data.seed"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        yield flag, job.seed if job.data.seed is None else job.data.seed

    def read(view: NativeView) -> Mapping[str, Value]:
        by_default = view.peek(f"{LOADER}type") == MEGATRON and is_file(view)
        if not view.has(flag) and not by_default:
            return {}
        written = view.take(flag, 1234)
        return {} if written == view.peek("seed", 1) else {path: written}

    note = "samples are ordered by a seed of their own (default 1234), which is the job's"
    return Row(fields=(path, "seed"), flags=(flag,), emit=emit, read=read, when=is_megatron, note=note)


def _pipeline_seed() -> Row:
    flag = f"{_SECTION}seed"

    def read(view: NativeView) -> Mapping[str, Value]:
        drop(view, {flag: view.peek("seed", 1)})
        return {}

    return Row(
        fields=("seed",),
        flags=(flag,),
        emit=lambda job: ((flag, job.seed),),
        read=read,
        derived=True,
        note="MindFormers overwrites it with the job's (dataset/utils.py: check_dataset_config)",
    )


def seed_rows() -> tuple[Row, ...]:
    """Return the rows of the two seeds of the data."""
    return (_order(), _pipeline_seed())


def document_rows() -> tuple[Row, ...]:
    """Return the rows of end-of-document and padding tokens."""
    return (
        same("data.eod_token_id", f"{CONFIG}eod", when=is_megatron),
        mapped(
            "data.pad_token_id",
            f"{CONFIG}pad",
            int,
            lambda token: None if token == -1 else token,
            when=is_megatron,
            note="-1: none",
        ),
        same("data.max_documents", f"{CONFIG}eod_pad_length", when=is_megatron),
    )


def worker_rows(version: str) -> tuple[Row, ...]:
    """Return the rows of workers and batches."""
    numa, prefetch = f"{_SECTION}numa_enable", f"{_SECTION}prefetch_size"
    note = "1.6 passes the file's value to MindSpore, and null where the file has none (dataset/base_dataset.py:52)"
    must = version == "1.6.0"
    return (
        mapped("data.num_workers", f"{_SECTION}num_parallel_workers", lambda count: max(count, 1), int),
        same("data.worker_processes", f"{_SECTION}python_multiprocessing"),
        always_written(
            "data.drop_last", f"{_SECTION}drop_remainder", True, note="every step has the full global batch"
        ),
        same("data.repeat", f"{_SECTION}repeat"),
        always_written("data.numa", numa, False, note=note) if must else same("data.numa", numa),
        always_written("data.prefetch", prefetch, 1, note=note) if must else same("data.prefetch", prefetch),
        follows(
            "train_dataset_task.type",
            "CausalLanguageModelDataset",
            "task.type",
            note="its dataset_config is train_dataset",
        ),
    )
