"""Rows of data and of the length of training, which MindFormers says through the number of samples."""

from collections.abc import Iterable, Mapping

from backends.mindformers.mapping_dims import EPOCHS, SIZES, STOP_STEP, batch_of, data_parallel, global_batch
from backends.mindformers.mapping_support import (
    MODEL,
    drop,
    first_given,
    frozen,
    key,
    require,
    uses_flash,
)
from launcher.job import Job, Value
from launcher.translate.rows import NativeView, Row, Unsupported, fixed, mapped, same

LOADER = "train_dataset.data_loader."
CONFIG = f"{LOADER}config."
_TYPE = f"{LOADER}type"
_MEGATRON, _HUB = "BlendedMegatronDatasetDataLoader", "HFDataLoader"
_COLUMNS = ("input_ids", "labels", "loss_mask", "position_ids")
_MASK_FROM_SEQUENCE = 2048  # A compressed mask needs at least this (mask_generate.py:68 @2.1.0).
_EOD = f"{CONFIG}eod"
_HANDLER = f"{LOADER}handler"
_FULL_MASK, _DOCUMENT_MASK = "create_attention_mask", "create_compressed_eod_mask"


def data_format(job: Job) -> str:
    """Return the format of the data: as said, else token files to pre-train on and hub data to fine-tune on."""
    if job.data.format is not None:
        return job.data.format
    return "megatron" if job.task.type == "pretrain" else "hub"


def is_megatron(job: Job) -> bool:
    """Tell whether the data are Megatron's token files; a rehearsal's own data are written as such."""
    return data_format(job) in ("megatron", "sample")


def is_hub(job: Job) -> bool:
    """Tell whether the data are Hugging Face's."""
    return data_format(job) == "hub"


def _mask(job: Job) -> str:
    """Return how the causal mask is made: `compressed` in the kernel, `documents` in it too, `full` by the loader.

    Left to itself MindFormers builds the mask from the tokens and hides every padding token in it, which for Qwen is
    the end of a document (mask_generate.py:96 @2.1.0); both ways here leave it plain.
    """
    given = job.backend.args
    if job.data.reset_attention_mask or any(given.get(f"{place}{_DOCUMENT_MASK}") for place in (LOADER, CONFIG)):
        return "documents"
    # Samples packed into one sequence must not see each other.
    packed = is_hub(job) and (bool(job.batch.packing) or _packs(given.get(_HANDLER)))
    if packed or any(given.get(f"{place}{_FULL_MASK}") for place in (LOADER, CONFIG)):
        return "full"
    long = job.batch.seq_length is None or job.batch.seq_length >= _MASK_FROM_SEQUENCE
    return "compressed" if uses_flash(job) and long else "full"


def _packs(handlers: Value) -> bool:
    return any(isinstance(each, Mapping) and each.get("type") == "PackingHandler" for each in handlers or ())


def _columns(job: Job) -> tuple[str, ...]:
    given = job.backend.args.get(_COLUMN_FLAG)
    if isinstance(given, (list, tuple)):
        return tuple(given)
    last = {"compressed": (), "documents": ("actual_seq_len",), "full": ("attention_mask",)}[_mask(job)]
    return (*_COLUMNS, *last)


def _strategy(columns: tuple[str, ...], dp: int) -> Value:
    return tuple((dp, 1, 1, 1) if column == "attention_mask" else (dp, 1) for column in columns)


def _loader(version: str) -> Row:
    kinds = f"{LOADER}datasets_type"
    path = "data.format"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        kind = data_format(job)
        if kind in ("text", "messages"):
            why = "its loaders take Megatron token files, and instruction data with Alpaca's columns: tokenize first"
            raise Unsupported(path, why, (f"{path}=megatron", f"{path}=hub"))
        require(kind != "mock", path, "it has no mock data that can be trained on", f"{path}=megatron")
        require(kind != "hub" or version != "1.6.0", path, "version 1.6 has no HFDataLoader", f"{path}=megatron")
        yield _TYPE, _HUB if kind == "hub" else _MEGATRON
        if kind != "hub":
            yield kinds, "GPTDataset"

    def read(view: NativeView) -> Mapping[str, Value]:
        if view.peek(_TYPE) not in (_MEGATRON, _HUB):
            return {}
        drop(view, {kinds: "GPTDataset"})
        return {path: "megatron" if view.take(_TYPE) == _MEGATRON else "hub"}

    return Row(fields=(path,), flags=(_TYPE, kinds), emit=emit, read=read)


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
                why = "its GPTDataset is built for a number of samples: say how long to train"
                raise Unsupported(paths[0], why, (f"{paths[0]}=1000",))
            yield EPOCHS, int(epochs or 1)
            if samples is not None:
                yield SIZES, (samples, 0, 0)
            return
        steps = schedule.train_iters
        if steps is None and schedule.train_samples is not None and size:
            steps = schedule.train_samples // size
        if steps is None and epochs is None:
            raise Unsupported(paths[0], "say how long to train", (f"{paths[2]}=1", f"{paths[0]}=1000"))
        # As many passes as steps are always enough; the callback ends training at the step.
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


def length_rows() -> tuple[Row, ...]:
    """Return the rows that say how long training lasts, and that steps are counted one by one."""
    return (
        _length(),
        fixed("runner_config.sink_mode", True),
        fixed("runner_config.sink_size", 1, note="the host sees every step: callbacks, logs and stops are exact"),
    )


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
        note="all data train unless the job says otherwise, as in MindFormers' examples",
    )


def _documents() -> Row:
    names = ("reset_position_ids", "reset_attention_mask", "eod_mask_loss")
    flags = tuple(f"{CONFIG}{name}" for name in names)
    compressed, own = key("use_attn_mask_compression"), key("use_eod_attn_mask_compression")
    full, packed = f"{CONFIG}{_FULL_MASK}", f"{CONFIG}{_DOCUMENT_MASK}"
    fields = (*(f"data.{name}" for name in names), "kernels.attention_backend")

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        values = [bool(getattr(job.data, name)) for name in names]
        for name, value, flag in zip(names, values, flags, strict=True):
            why = f"it finds ends of documents by their token, which the job does not carry: set backend.args.{_EOD}"
            require(not value or _EOD in job.backend.args, f"data.{name}", why, f"backend.args.{_EOD}=TOKEN_ID")
            yield flag, value
        mask = _mask(job)
        yield full, mask == "full"
        yield packed, mask == "documents"

    def read(view: NativeView) -> Mapping[str, Value]:
        found: dict[str, Value] = {}
        for path, flag in zip(fields, flags, strict=False):
            if view.has(flag):
                value = view.take(flag)
                found[path] = value or None
        flash, long = view.peek(key("use_flash_attention"), True), view.peek(key("seq_length"), 4096)
        plain = not (flash and long >= _MASK_FROM_SEQUENCE)
        drop(view, {full: plain and not found.get(fields[1]), packed: bool(found.get(fields[1]))})
        return found

    note = "the causal mask is explicit: by default MindFormers would hide padding (for Qwen: end-of-document) tokens"
    return Row(
        fields=fields,
        flags=(*flags, full, packed, compressed, own),
        emit=emit,
        read=read,
        when=is_megatron,
        note=note,
    )


def mask_rows() -> tuple[Row, ...]:
    """Return the rows of the model section that choose the attention kernel and its mask."""
    flash, compressed = key("use_flash_attention"), key("use_attn_mask_compression")
    documents = key("use_eod_attn_mask_compression")

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        why = "masks within documents exist only in its flash attention"
        on = uses_flash(job)
        require(on or not job.data.reset_attention_mask, "data.reset_attention_mask", why)
        # With context parallelism its checks read the file itself, not the default (tools/check_rules.py:189 @2.1.0).
        if job.kernels.attention_backend is not None or job.parallel.cp > 1:
            yield flash, on
        mask = _mask(job)
        if mask != "full":
            yield documents if mask == "documents" else compressed, True

    def read(view: NativeView) -> Mapping[str, Value]:
        found: dict[str, Value] = {}
        long = view.peek(key("seq_length"), 4096) >= _MASK_FROM_SEQUENCE
        if view.has(flash):
            found["kernels.attention_backend"] = "flash" if view.take(flash) else "unfused"
        column = _mask_column(view)
        if view.peek(flash, True) and column == ("actual_seq_len",):
            drop(view, {documents: True})
        elif view.peek(flash, True) and not column and long and _has_model(view):
            # A file that says nothing has the mask made from its tokens, and keeps it.
            view.values.setdefault(compressed, False)
            drop(view, {compressed: True})
        return found

    note = "flash is MindFormers' default; fused and auto are flash here"
    flags = (flash, compressed, documents)
    return (Row(fields=("kernels.attention_backend",), flags=flags, emit=emit, read=read, note=note),)


_COLUMN_FLAG, _ARGUMENTS = "train_dataset.input_columns", "train_dataset.construct_args_key"


def _known_columns(view: NativeView) -> tuple[str, ...] | None:
    names = frozen(view.peek(_COLUMN_FLAG))
    return names if names == (*_COLUMNS, *_mask_column(view)) else None


def _mask_column(view: NativeView) -> tuple[str, ...]:
    """Return the fifth column that the launcher would write for the loader of a file."""
    if any(view.peek(f"{place}{_DOCUMENT_MASK}") for place in (LOADER, CONFIG)):
        return ("actual_seq_len",)
    packed = _packs(view.peek(_HANDLER))
    full = any(view.peek(f"{place}{_FULL_MASK}") for place in (LOADER, CONFIG))
    return ("attention_mask",) if packed or full else ()


def _has_model(view: NativeView) -> bool:
    return any(name.startswith(MODEL) for name in view.values)


def _shape() -> Row:
    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        yield _COLUMN_FLAG, _columns(job)
        yield _ARGUMENTS, _columns(job)

    def read(view: NativeView) -> Mapping[str, Value]:
        names = _known_columns(view)
        if names is not None:
            drop(view, {_COLUMN_FLAG: names, _ARGUMENTS: names})
        return {}

    note = "the columns that the model takes; with a mask as the fifth"
    return Row(fields=(), flags=(_COLUMN_FLAG, _ARGUMENTS), emit=emit, read=read, derived=True, note=note)


def strategy_row() -> Row:
    """Return the row of `dataset_strategy`, which splits every column over the data-parallel ranks."""
    flag = "parallel.dataset_strategy"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        dp = data_parallel(job)
        if dp is not None:
            yield flag, _strategy(_columns(job), dp)

    def read(view: NativeView) -> Mapping[str, Value]:
        names = _known_columns(view)
        if names is not None:
            drop(view, {flag: _strategy(names, view.peek("parallel_config.data_parallel", 1))})
        return {}

    return Row(fields=("parallel.dp",), flags=(flag,), emit=emit, read=read, derived=True)


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


def _hub() -> Row:
    place, files = f"{LOADER}path", f"{LOADER}data_files"
    function, share, shuffle = f"{LOADER}load_func", f"{LOADER}split", f"{LOADER}shuffle"
    mask = f"{LOADER}{_FULL_MASK}"

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
        yield mask, _mask(job) == "full"
        yield shuffle, bool(job.data.shuffle)
        if _HANDLER in job.backend.args:
            return
        require(job.batch.seq_length is not None, "batch.seq_length", "its handlers need the length of a sample")
        yield _HANDLER, _handlers(job)

    return Row(
        fields=("data.paths", "data.shuffle", "batch.packing", "tokenizer.path", "tokenizer.trust_remote_code"),
        flags=(function, place, files, share, mask, shuffle, _HANDLER),
        emit=emit,
        read=_read_hub,
        when=is_hub,
        note="instruction data with Alpaca's columns; MindFormers puts its own prompt text around them "
        "(dataset/handler/alpaca_handler.py)",
    )


def _read_hub(view: NativeView) -> Mapping[str, Value]:
    if view.peek(_TYPE) != _HUB:
        return {}
    found: dict[str, Value] = {}
    drop(view, {f"{LOADER}load_func": "load_dataset", f"{LOADER}split": "train"})
    packed = _packs(view.peek(_HANDLER))
    flash, long = view.peek(key("use_flash_attention"), True), view.peek(key("seq_length"), 4096)
    drop(view, {f"{LOADER}{_FULL_MASK}": packed or not flash or long < _MASK_FROM_SEQUENCE})
    files, place = f"{LOADER}data_files", f"{LOADER}path"
    given = first_given(view, (files,) if view.peek(place) == "json" else (place,))
    if given is not None and isinstance(view.peek(given), str):
        found["data.paths"] = (view.take(given),)
        drop(view, {place: "json"})
    if view.has(f"{LOADER}shuffle"):
        found["data.shuffle"] = view.take(f"{LOADER}shuffle")
    return {**found, **_read_handlers(view)}


def _read_handlers(view: NativeView) -> Mapping[str, Value]:
    handlers = frozen(view.peek(_HANDLER))
    if not isinstance(handlers, tuple) or not handlers or handlers[0].get("type") != "AlpacaInstructDataHandler":
        return {}
    first, packing = handlers[0], len(handlers) == 2 and handlers[1].get("type") == "PackingHandler"
    if len(handlers) > (2 if packing else 1):
        return {}
    view.take(_HANDLER)
    tokenizer = first.get("tokenizer") or {}
    return {
        "batch.seq_length": first.get("seq_length"),
        "batch.packing": packing or None,
        "tokenizer.path": tokenizer.get("pretrained_model_dir"),
        "tokenizer.trust_remote_code": tokenizer.get("trust_remote_code"),
    }


def _shuffled() -> Row:
    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if job.data.shuffle is False:
            raise Unsupported("data.shuffle", "its GPTDataset always shuffles", ("data.shuffle=true",))
        if job.batch.packing is False:
            why = "its GPTDataset always fills a sequence with several documents"
            raise Unsupported("batch.packing", why, ("batch.packing=true",))
        yield f"{LOADER}shuffle", False

    def read(view: NativeView) -> Mapping[str, Value]:
        if view.peek(_TYPE) == _MEGATRON:
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


def _seeds() -> Row:
    flags = (f"{CONFIG}seed", "train_dataset.seed")

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if is_megatron(job):
            yield flags[0], job.seed
        yield flags[1], job.seed

    def read(view: NativeView) -> Mapping[str, Value]:
        drop(view, dict.fromkeys(flags, view.peek("seed", 1)))
        return {}

    note = "the order of samples has its own seeds (default 1234), which are the job's"
    # Two fields: a file with other seeds for its data than for training passes them through without contradiction.
    return Row(fields=("seed", "data.shuffle"), flags=flags, emit=emit, read=read, derived=True, note=note)


def data_rows(version: str) -> tuple[Row, ...]:
    """Return the rows of the sections train_dataset and train_dataset_task."""
    return (
        _loader(version),
        _shuffled(),
        _hub(),
        _seeds(),
        _data_split(),
        _loader_length(),
        _documents(),
        same("data.cache_path", f"{CONFIG}path_to_cache", when=is_megatron),
        _blend(),
        _shape(),
        mapped("data.num_workers", "train_dataset.num_parallel_workers", lambda count: max(count, 1), int),
        fixed("train_dataset.drop_remainder", True, note="every step has the full global batch"),
        fixed("train_dataset_task.type", "CausalLanguageModelDataset", note="its dataset_config is train_dataset"),
    )
