"""The row of Hugging Face data: data set, tokenization and packing."""

from collections.abc import Iterable, Mapping

from backends.mindformers.mapping.loader import (
    FULL_MASK,
    HANDLER,
    HUB,
    LOADER,
    TYPE,
    is_hub,
    is_tokenized,
    is_tokenized_file,
    mask_of,
    mask_of_file,
    packs,
)
from backends.mindformers.mapping.support import drop, first_written, frozen, require
from launcher.job import Job, Value
from launcher.mapping.rows import NativeView, Row


def _handlers(job: Job) -> Value:
    start = job.model.pretrained if job.model.pretrained is not None else bool(job.model.path)
    tokenizer: dict[str, Value] = {}
    directory = job.tokenizer.path or (None if start else job.model.path)
    if directory is not None:
        tokenizer["pretrained_model_dir"] = directory
    if job.tokenizer.trust_remote_code is not None:
        tokenizer["trust_remote_code"] = job.tokenizer.trust_remote_code
    tokenizer["padding_side"] = "right"
    length = job.batch.seq_length
    alpaca = {"type": "AlpacaInstructDataHandler", "seq_length": length, "padding": not job.batch.packing}
    handlers: list[Value] = [{**alpaca, "tokenizer": tokenizer}]
    if job.batch.packing:
        handlers.append({"type": "PackingHandler", "seq_length": length, "pack_strategy": "pack"})
    return tuple(handlers)


def hub_row() -> Row:
    """Return the row of Hugging Face data."""
    place, files = f"{LOADER}path", f"{LOADER}data_files"
    function, share, shuffle = f"{LOADER}load_func", f"{LOADER}split", f"{LOADER}shuffle"
    mask = f"{LOADER}{FULL_MASK}"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        paths = job.data.paths
        require(len(paths) <= 1, "data.paths", "its HFDataLoader reads one data set", "data.paths=[NAME]")
        yield function, "load_dataset"
        if paths and paths[0].endswith((".json", ".jsonl")):
            yield place, "json"
            yield files, paths[0]
        elif paths:
            yield place, paths[0]
        yield share, "train"
        yield mask, mask_of(job) == "full"
        yield shuffle, bool(job.data.shuffle)
        if HANDLER in job.backend.passthrough:
            return
        require(job.batch.seq_length is not None, "batch.seq_length", "its handlers need the length of a sample")
        yield HANDLER, _handlers(job)

    return Row(
        fields=("data.paths", "data.shuffle", "batch.packing", "tokenizer.path", "tokenizer.trust_remote_code"),
        flags=(function, place, files, share, mask, shuffle, HANDLER),
        emit=emit,
        read=_read_hub,
        when=is_hub,
        note="instruction data with Alpaca's columns; MindFormers puts its own prompt text around them "
        "(dataset/handler/alpaca_handler.py)",
    )


def tokenized_row() -> Row:
    """Return the row of token numbers and labels, which no handler changes."""
    place, files = f"{LOADER}path", f"{LOADER}data_files"
    function, share, shuffle = f"{LOADER}load_func", f"{LOADER}split", f"{LOADER}shuffle"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        paths = job.data.paths
        require(len(paths) <= 1, "data.paths", "its loader reads one file", "data.paths=[FILE.jsonl]")
        why = "the samples of its loader are as long as the file has them"
        require(not job.batch.packing, "batch.packing", why, "batch.packing=false")
        yield function, "load_dataset"
        yield place, "json"
        if paths:
            yield files, paths[0]
        yield share, "train"
        yield shuffle, bool(job.data.shuffle)

    def read(view: NativeView) -> Mapping[str, Value]:
        if not is_tokenized_file(view):
            return {}
        found: dict[str, Value] = {}
        given = view.peek(files)
        if isinstance(given, str):
            found["data.paths"] = (view.take(files),)
        if view.has(shuffle):
            found["data.shuffle"] = view.take(shuffle)
        drop(view, {function: "load_dataset", share: "train", place: "json"})
        return found

    return Row(
        fields=("data.paths", "data.shuffle", "batch.packing"),
        flags=(function, place, files, share, shuffle),
        emit=emit,
        read=read,
        when=is_tokenized,
        note="JSON lines of input_ids and labels, each as long as batch.seq_length; labels[i] is predicted at i",
    )


def _read_hub(view: NativeView) -> Mapping[str, Value]:
    if view.peek(TYPE) != HUB or is_tokenized_file(view):
        return {}
    found: dict[str, Value] = {}
    drop(view, {f"{LOADER}load_func": "load_dataset", f"{LOADER}split": "train"})
    drop(view, {f"{LOADER}{FULL_MASK}": mask_of_file(view) == "full"})
    files, place = f"{LOADER}data_files", f"{LOADER}path"
    given = first_written(view, (files,) if view.peek(place) == "json" else (place,))
    if given is not None and isinstance(view.peek(given), str):
        found["data.paths"] = (view.take(given),)
        drop(view, {place: "json"})
    if view.has(f"{LOADER}shuffle"):
        found["data.shuffle"] = view.take(f"{LOADER}shuffle")
    return {**found, **_read_handlers(view)}


def _read_handlers(view: NativeView) -> Mapping[str, Value]:
    handlers = frozen(view.peek(HANDLER))
    if not isinstance(handlers, tuple) or not all(isinstance(each, Mapping) for each in handlers):
        return {}
    kinds = [each.get("type") for each in handlers]
    if kinds in (["AlpacaInstructDataHandler"], ["AlpacaInstructDataHandler", "PackingHandler"]):
        view.take(HANDLER)
    return {**_dataset_fields(handlers), "batch.packing": packs(handlers) or None}


def _dataset_fields(handlers: tuple[Mapping[str, Value], ...]) -> dict[str, Value]:
    """Return the fields set by a list of handlers; a list with other handlers is itself passed through."""
    lengths = [each["seq_length"] for each in handlers if isinstance(each.get("seq_length"), int)]
    tokenizers = [each["tokenizer"] for each in handlers if isinstance(each.get("tokenizer"), Mapping)]
    tokenizer = tokenizers[0] if tokenizers else {}
    return {
        "batch.seq_length": lengths[-1] if lengths else None,  # the last handler determines the sample length
        "tokenizer.path": tokenizer.get("pretrained_model_dir"),
        "tokenizer.trust_remote_code": tokenizer.get("trust_remote_code"),
    }


def _read_common(view: NativeView) -> Mapping[str, Value]:
    """Return the fields set by the handlers of 1.6's CommonDataLoader; the loader itself has no field."""
    handlers = frozen(view.peek(HANDLER))
    if view.peek(TYPE) == HUB or not isinstance(handlers, tuple):
        return {}
    if not all(isinstance(each, Mapping) for each in handlers):
        return {}
    return {path: value for path, value in _dataset_fields(handlers).items() if path == "batch.seq_length"}


def common_row() -> Row:
    """Return the row that reads the length of samples from the handlers of loaders without a field."""
    note = "of CommonDataLoader and others, whose list of handlers is passed through"
    return Row(fields=("batch.seq_length",), flags=(), emit=lambda job: (), read=_read_common, note=note)
