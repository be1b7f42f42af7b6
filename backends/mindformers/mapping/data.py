"""Rows of data and of the length of training, which MindFormers sets by the number of samples."""

from collections.abc import Iterable, Mapping

from backends.mindformers.mapping.batch_arithmetic import EPOCHS, SIZES, STOP_STEP, batch_of, global_batch
from backends.mindformers.mapping.data_pipeline import document_rows, seed_rows, worker_rows
from backends.mindformers.mapping.hub_data import common_row, hub_row, tokenized_row
from backends.mindformers.mapping.loader import (
    CONFIG,
    DOCUMENT_MASK,
    FULL_MASK,
    LOADER,
    MEGATRON,
    RECORDS,
    TYPE,
    columns_row,
    data_format,
    is_megatron,
    loader_row,
    mask_of,
    mask_of_file,
)
from backends.mindformers.mapping.support import drop, key, require
from launcher.job import Job, Value
from launcher.mapping.rows import NativeView, Row, Unsupported, same

_EOD = f"{CONFIG}eod"


def _length() -> Row:
    paths = ("schedule.train_iters", "schedule.train_samples", "schedule.epochs")

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        schedule, size = job.schedule, global_batch(job)
        epochs = schedule.epochs
        why = "MindFormers counts whole passes"
        require(epochs is None or (epochs == int(epochs) and epochs >= 1), paths[2], why, f"{paths[2]}=1")
        if is_megatron(job):
            samples = schedule.train_samples
            if schedule.train_iters is not None and size is not None:
                samples = schedule.train_iters * size
            if samples is None and (schedule.train_iters is None or size is not None):
                why = "its GPTDataset is built for a number of samples: set the length of training"
                raise Unsupported(paths[0], why, (f"{paths[0]}=1000",))
            yield EPOCHS, int(epochs or 1)
            if samples is not None:
                yield SIZES, (samples, 0, 0)
            return
        steps = schedule.train_iters
        if steps is None and schedule.train_samples is not None and size:
            steps = schedule.train_samples // size
        if steps is None and epochs is None:
            raise Unsupported(paths[0], "the length of training must be set", (f"{paths[2]}=1", f"{paths[0]}=1000"))
        # With as many epochs as steps the data always suffices; the callback ends training at the step.
        yield EPOCHS, int(epochs or 1) if steps is None else steps
        if steps is not None:
            yield STOP_STEP, steps

    note = (
        "sizes = steps x global batch and one pass give exactly train_iters steps (base_trainer.py:979 @2.1.0); data "
        "without a size stop by TrainCallBack. Not runner_config.stop_step, which the trainer reads and never uses "
        "(base_trainer.py:1344 @2.1.0)"
    )
    return Row(fields=paths, flags=(EPOCHS, SIZES, STOP_STEP), emit=emit, read=_read_length, note=note)


def _read_length(view: NativeView) -> Mapping[str, Value]:
    sizes, epochs, batch = view.peek(SIZES), view.peek(EPOCHS, 1), batch_of(view)
    if isinstance(view.peek(STOP_STEP), int):
        view.take(EPOCHS)
        return {"schedule.train_iters": view.take(STOP_STEP)}
    if isinstance(sizes, (list, tuple)) and len(sizes) == 3 and isinstance(sizes[0], int) and not any(sizes[1:]):
        view.take(SIZES)
        view.take(EPOCHS)
        if epochs == 1 and sizes[0] % batch == 0 and sizes[0]:
            return {"schedule.train_iters": sizes[0] // batch}
        return {"schedule.train_samples": sizes[0], "schedule.epochs": None if epochs == 1 else float(epochs)}
    if view.has(EPOCHS) and isinstance(epochs, int):
        return {"schedule.epochs": float(view.take(EPOCHS))}
    return {}


def _blend() -> Row:
    flag, path = f"{CONFIG}data_path", "data.paths"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        paths = job.data.paths
        if not paths:
            return
        weighted = len(paths) % 2 == 0 and all(_is_number(part) for part in paths[::2])
        why = "without weights its loader reads every file once, whatever number of samples is asked for"
        works = "data.paths=[" + ",".join(f"1,{part}" for part in paths) + "]"
        require(weighted or len(paths) == 1, path, why, works)
        yield flag, paths if weighted else ("1", *paths)

    def read(view: NativeView) -> Mapping[str, Value]:
        written = view.peek(flag)
        if not isinstance(written, (list, tuple)) or not written:
            return {}
        parts = tuple(str(part) for part in view.take(flag))
        return {path: parts[1:] if len(parts) == 2 and parts[0] in ("1", "1.0") else parts}

    note = "with a weight the blend has exactly the samples asked for; one file alone would give whole passes of it"
    return Row(fields=(path,), flags=(flag,), emit=emit, read=read, when=is_megatron, note=note)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _data_split() -> Row:
    flag, path, whole = f"{CONFIG}split", "data.split", "1, 0, 0"

    def read(view: NativeView) -> Mapping[str, Value]:
        if not view.has(flag):
            return {}
        written = view.take(flag)
        return {} if written == whole else {path: written}

    return Row(
        fields=(path,),
        flags=(flag,),
        emit=lambda job: ((flag, job.data.split or whole),),
        read=read,
        when=is_megatron,
        note="all data are used for training by default, as in MindFormers' examples",
    )


def _documents() -> Row:
    names = ("reset_position_ids", "reset_attention_mask", "eod_mask_loss")
    flags = tuple(f"{CONFIG}{name}" for name in names)
    full, packed = f"{CONFIG}{FULL_MASK}", f"{CONFIG}{DOCUMENT_MASK}"
    fields = (*(f"data.{name}" for name in names), "kernels.attention_mask")

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        values = [bool(getattr(job.data, name)) for name in names]
        known = job.data.eod_token_id is not None or _EOD in job.backend.passthrough
        for name, value, flag in zip(names, values, flags, strict=True):
            why = "it finds the ends of documents by their token: set it"
            require(not value or known, f"data.{name}", why, "data.eod_token_id=TOKEN_ID")
            yield flag, value
        mask = mask_of(job)
        yield full, mask == "full"
        yield packed, mask == "documents"

    def read(view: NativeView) -> Mapping[str, Value]:
        found: dict[str, Value] = {}
        for path, flag in zip(fields, flags, strict=False):
            if view.has(flag):
                value = view.take(flag)
                found[path] = value or None
        mask = mask_of_file(view)
        drop(view, {full: mask == "full"})
        if bool(found.get(fields[1])) == (mask == "documents"):
            drop(view, {packed: mask == "documents"})
        return found

    note = "the causal mask is explicit: by default MindFormers would hide padding (for Qwen: end-of-document) tokens"
    return Row(fields=fields, flags=(*flags, full, packed), emit=emit, read=read, when=is_megatron, note=note)


def _shuffled() -> Row:
    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if job.data.shuffle is False:
            raise Unsupported("data.shuffle", "its GPTDataset always shuffles", ("data.shuffle=true",))
        if job.batch.packing is False:
            why = "its GPTDataset always fills a sequence with several documents"
            raise Unsupported("batch.packing", why, ("batch.packing=true",))
        yield f"{LOADER}shuffle", False

    def read(view: NativeView) -> Mapping[str, Value]:
        if view.peek(TYPE) == MEGATRON:
            drop(view, {f"{LOADER}shuffle": False})
        return {}

    note = "GPTDataset shuffles and packs by itself; the loader must not shuffle again"
    flags = (f"{LOADER}shuffle",)
    return Row(fields=("data.shuffle", "batch.packing"), flags=flags, emit=emit, read=read, when=is_megatron, note=note)


def _loader_length() -> Row:
    flag = f"{CONFIG}seq_length"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if job.batch.seq_length is not None:
            yield flag, job.batch.seq_length

    def read(view: NativeView) -> Mapping[str, Value]:
        return {"batch.seq_length": view.take(flag)} if view.has(flag) else {}

    return Row(fields=("batch.seq_length",), flags=(flag,), emit=emit, read=read, when=is_megatron)


def _records() -> Row:
    flag, path = f"{LOADER}dataset_dir", "data.paths"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        require(len(job.data.paths) <= 1, path, "its record loader reads one folder", f"{path}=[DIR]")
        if job.data.paths:
            yield flag, job.data.paths[0]
        if job.data.shuffle is not None:
            yield f"{LOADER}shuffle", job.data.shuffle

    def read(view: NativeView) -> Mapping[str, Value]:
        if view.peek(TYPE) != RECORDS:
            return {}
        place = view.take(flag)
        shuffle = view.take(f"{LOADER}shuffle") if isinstance(view.peek(f"{LOADER}shuffle"), bool) else None
        return {path: (place,) if place else None, "data.shuffle": shuffle}

    return Row(
        fields=(path, "data.shuffle"),
        flags=(flag, f"{LOADER}shuffle"),
        emit=emit,
        read=read,
        when=lambda job: data_format(job) == "mindrecord",
    )


def data_rows(version: str) -> tuple[Row, ...]:
    """Return the rows of the sections train_dataset and train_dataset_task, and of the length of training."""
    return (
        loader_row(version),
        _shuffled(),
        tokenized_row(),
        hub_row(),
        common_row(),
        _records(),
        *seed_rows(),
        _data_split(),
        _loader_length(),
        *document_rows(),
        _documents(),
        same("data.cache_path", f"{CONFIG}path_to_cache", when=is_megatron),
        _blend(),
        columns_row(),
        *worker_rows(version),
        _length(),
        same("data.mmap", f"{CONFIG}mmap_bin_files", when=is_megatron),
        same("data.index_threads", f"{CONFIG}num_dataset_builder_threads", when=is_megatron),
    )


def cache_and_stream_rows() -> tuple[Row, ...]:
    """Return the rows of the object storage cache and of streamed data."""
    return (
        same("data.object_storage_cache", f"{CONFIG}s3_cache_path", when=is_megatron),
        same("data.shuffle_buffer_size", "train_dataset.data_loader.shuffle_buffer_size"),
    )


def ignored_label_row() -> Row:
    """Return the row of the label that the loss leaves out."""
    return same("data.ignore_token_id", key("ignore_token_id"))
