"""Rows for training data: files, their split, how they are read."""

from collections.abc import Iterable, Mapping

from backends.megatron_lm.mapping.evaluation import evaluates
from backends.megatron_lm.mapping.factories import BEFORE_0_13, added_in_0_9, listed, many, when_set
from launcher.job import Job, Value
from launcher.mapping.rows import Gap, NativeView, Row, Unsupported, computed, switch, switch_off, warning


def data() -> tuple[Row, ...]:
    """Return the rows of data."""
    cache = "data.object_storage_cache"
    return (
        paths(),
        split(),
        when_set("data.cache_path", "data-cache-path"),
        when_set("data.num_workers", "num-workers"),
        switch("data.reset_position_ids", "reset-position-ids"),
        switch("data.reset_attention_mask", "reset-attention-mask"),
        switch("data.eod_mask_loss", "eod-mask-loss"),
        listed("data.test_paths", "test-data-path"),
        when_set("data.paths_file", "data-args-path", since="0.12"),
        when_set("data.order", "dataloader-type"),
        # Read where batches are sampled at random (megatron/legacy/data/data_samplers.py:37 @core_v0.12.1).
        switch_off("data.sharding", "no-data-sharding", read_in=lambda job: job.data.order == "cyclic"),
        switch_off("data.mmap", "no-mmap-bin-files"),
        when_set("data.index_threads", "num-dataset-builder-threads"),
        when_set("data.split_paths_file", "per-split-data-args-path", since="0.12"),
        when_set(cache, "object-storage-cache-path", since="0.13"),
        when_set(cache, "s3-cache-path", until=BEFORE_0_13),
    )


def paths() -> Row:
    """Return the row of the data files."""
    return computed(
        ("data.paths", "data.format", "data.validation_paths", "task.type"),
        ("data-path", "train-data-path", "valid-data-path", "mock-data"),
        _write_paths,
        _read_paths,
        note="Pre-training reads .bin/.idx prefixes (tools/preprocess_data.py), --sft JSONL of messages.",
    )


def _write_paths(job: Job) -> Iterable[tuple[str, Value]]:
    kind, known = job.data.format, ("messages",) if job.task.type == "sft" else ("megatron",)
    if kind == "mock":
        yield "mock-data", True
        return
    if kind not in (None, "sample", *known):
        wanted = "JSONL of messages" if job.task.type == "sft" else "token files made by tools/preprocess_data.py"
        raise Unsupported("data.format", f"it reads {wanted}", tuple(f"data.format={name}" for name in known))
    yield from write_files(job)


def write_files(job: Job) -> Iterable[tuple[str, Value]]:
    """Yield the arguments of the data files: of one list, or of one for training and one for validation."""
    if job.data.paths and job.data.validation_paths:
        yield "train-data-path", job.data.paths
        yield "valid-data-path", job.data.validation_paths
    elif job.data.paths:
        yield "data-path", job.data.paths


def _read_paths(view: NativeView) -> Mapping[str, Value]:
    if view.take("mock-data", False):
        return {"data.format": "mock"}
    found = read_files(view)
    if found:
        found["data.format"] = "messages" if view.peek("sft") else "megatron"
    return found


def read_files(view: NativeView) -> dict[str, Value]:
    """Return the fields of the data files that `write_files` wrote."""
    if view.has("train-data-path") and view.has("valid-data-path"):
        paths, validation = many(view.take("train-data-path")), many(view.take("valid-data-path"))
        return {"data.paths": paths, "data.validation_paths": validation}
    return {"data.paths": many(view.take("data-path"))} if view.has("data-path") else {}


def split() -> Row:
    """Return the row of the split into training and validation data."""

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if job.data.validation_paths:
            return
        if job.data.split is not None:
            yield "split", job.data.split
        elif job.data.validation_ratio is not None:
            yield "split", f"{round(1 - job.data.validation_ratio, 12)},{job.data.validation_ratio},0"
        elif job.data.paths and job.data.format != "mock" and not evaluates(job):
            yield "split", "100,0,0"

    def read(view: NativeView) -> Mapping[str, Value]:
        return {"data.split": view.take("split")} if view.has("split") else {}

    return computed(
        ("data.split", "data.validation_ratio"),
        ("split",),
        emit,
        read,
        note="No evaluation is set: all data is training data. Megatron's own default reserves 3.1 % (969,30,1).",
    )


UNSUPPORTED: Mapping[str, Gap] = {
    "data.enable_thinking": Gap(
        why="chats are written by the chat template of the tokenizer", works=("data.enable_thinking=null",)
    ),
    "data.shuffle_buffer_size": Gap(
        why="token files are shuffled as a whole",
        works=("data.shuffle_buffer_size=null",),
        matters=lambda job: bool(job.data.streaming),
    ),
    "data.num_preprocess": warning("tokenizing is a separate program (tools/preprocess_data.py)"),
    "data.shuffle": Gap(
        why="token files are always shuffled by the seed", neutral=(True,), works=("data.shuffle=true",)
    ),
    "data.seed": warning(
        "token files are shuffled by the job's seed: the same samples in another order", works=("data.seed=null",)
    ),
    "data.streaming": Gap(
        why="token files are indexed before training", neutral=(False,), works=("data.streaming=false",)
    ),
    "data.lazy_tokenize": warning("data is tokenized before training", False),
    "data.system": Gap(why="system prompts are in the data", works=("data.system=null",)),
    **{
        path: Gap(why="self-cognition data is not generated: fill the names in", works=(f"{path}=null",))
        for path in ("data.self_cognition_author", "data.self_cognition_name")
    },
}
BEFORE_0_12: Mapping[str, Gap] = {"data.split_paths_file": added_in_0_9()}
WITHOUT_MEGATRON_LOOP: Mapping[str, Gap] = {
    "data.split_paths_file": Gap(why="data sets are named in the job", works=("data.paths=[…]",)),
}
