"""Settings shared by all data rows: the loader, its columns, and how the causal mask is built."""

from collections.abc import Iterable, Mapping

from backends.mindformers.mapping.batch_arithmetic import data_parallel
from backends.mindformers.mapping.support import MODEL, drop, frozen, is_file, is_legacy, key, require, uses_flash
from launcher.job import Job, Value
from launcher.mapping.rows import NativeView, Row, Unsupported

LOADER = "train_dataset.data_loader."
CONFIG = f"{LOADER}config."
TYPE = f"{LOADER}type"
MEGATRON, HUB, RECORDS = "BlendedMegatronDatasetDataLoader", "HFDataLoader", "MindDataset"
COMMON = "CommonDataLoader"  # HFDataLoader's predecessor, in 1.6
HANDLER = f"{LOADER}handler"
FULL_MASK, DOCUMENT_MASK = "create_attention_mask", "create_compressed_eod_mask"
_COLUMNS = ("input_ids", "labels", "loss_mask", "position_ids")
_OF_ONE_SAMPLE = ("input_ids", "labels")  # hf_dataloader.py:546 @1.8.0: of samples that are not packed
_MASK_FROM_SEQUENCE = 2048  # A compressed mask needs at least this (mask_generate.py:68 @2.1.0).
_FLASH, _COMPRESSED = key("use_flash_attention"), key("use_attn_mask_compression")
_DOCUMENTS = key("use_eod_attn_mask_compression")
_COLUMN_FLAG, _ARGUMENTS = "train_dataset.input_columns", "train_dataset.construct_args_key"
_STRATEGY = "parallel.dataset_strategy"


def data_format(job: Job) -> str:
    """Return the data format: as given, else token files for pre-training and hub data for fine-tuning."""
    if job.data.format is not None:
        return job.data.format
    if is_legacy(job):
        return "open"
    return "megatron" if job.task.type == "pretrain" else "hub"


def is_megatron(job: Job) -> bool:
    """Return whether the data is Megatron token files; sample data of a rehearsal is written as such."""
    return data_format(job) in ("megatron", "sample")


def is_hub(job: Job) -> bool:
    """Return whether the data is from Hugging Face."""
    return data_format(job) == "hub"


def is_tokenized(job: Job) -> bool:
    """Return whether the data is JSONL of token numbers and labels."""
    return data_format(job) == "tokenized"


def mask_of(job: Job) -> str:
    """Return how the causal mask is built: `compressed` and `documents` in the kernel, `full` by the loader.

    `tokens` is MindFormers' default: it builds the mask from the tokens and masks every padding token, which for Qwen
    is the end of a document (mask_generate.py:96 @2.1.0). The others use a plain mask.
    """
    given = job.backend.passthrough
    if job.data.reset_attention_mask or any(given.get(f"{place}{DOCUMENT_MASK}") for place in (LOADER, CONFIG)):
        return "documents"
    # Samples packed into one sequence must not attend to each other.
    packed = is_hub(job) and (bool(job.batch.packing) or packs(given.get(HANDLER)))
    if packed or any(given.get(f"{place}{FULL_MASK}") for place in (LOADER, CONFIG)):
        return "full"
    if job.kernels.attention_mask is not None:
        return job.kernels.attention_mask
    plain = _plain_mask(uses_flash(job), job.batch.seq_length)
    return "tokens" if plain == "full" and (is_tokenized(job) or is_hub(job)) else plain


def _plain_mask(flash: bool, length: int | None) -> str:
    return "compressed" if flash and (length is None or length >= _MASK_FROM_SEQUENCE) else "full"


def plain_mask_of_file(view: NativeView) -> str:
    """Return the mask that the launcher would choose for a file that is read."""
    return _plain_mask(bool(view.peek(_FLASH, True)), view.peek(key("seq_length"), 4096))


def mask_of_file(view: NativeView) -> str:
    """Return how a file's mask is built; see `mask_of`."""
    if any(view.peek(f"{place}{DOCUMENT_MASK}") for place in (LOADER, CONFIG)):
        return "documents"
    if packs(view.peek(HANDLER)) or any(view.peek(f"{place}{FULL_MASK}") for place in (LOADER, CONFIG)):
        return "full"
    return "compressed" if view.peek(_COMPRESSED) else "tokens"


def packs(handlers: Value) -> bool:
    """Return whether samples are packed into one sequence."""
    return any(isinstance(each, Mapping) and each.get("type") == "PackingHandler" for each in handlers or ())


# Masks with which HFDataLoader returns the columns of its samples; with others it makes all of them, of packed samples
# (_is_pack_mode, dataset/dataloader/hf_dataloader.py:74 @1.8.0).
_SAMPLES_APART = ("compressed", "tokens")


def _columns(job: Job) -> tuple[str, ...]:
    given = job.backend.passthrough.get(_COLUMN_FLAG)
    if isinstance(given, (list, tuple)):
        return tuple(given)
    if job.data.columns:
        return job.data.columns
    if is_tokenized(job) or (is_hub(job) and mask_of(job) in _SAMPLES_APART):
        return _OF_ONE_SAMPLE
    return (*_COLUMNS, *_MASK_COLUMN[mask_of(job)])


_MASK_COLUMN: Mapping[str, tuple[str, ...]] = {
    "compressed": (),
    "tokens": (),
    "documents": ("actual_seq_len",),
    "full": ("attention_mask",),
}


def columns_of_file(view: NativeView) -> tuple[str, ...]:
    """Return the columns that the launcher would write for a file that is read."""
    if is_tokenized_file(view) or (view.peek(TYPE) == HUB and mask_of_file(view) in _SAMPLES_APART):
        return _OF_ONE_SAMPLE
    return (*_COLUMNS, *_MASK_COLUMN[mask_of_file(view)])


def is_tokenized_file(view: NativeView) -> bool:
    """Return whether a file's data is JSONL of token numbers: no handler makes them."""
    json = view.peek(f"{LOADER}path") == "json"
    return json and view.peek(TYPE) in (HUB, COMMON) and not view.peek(HANDLER)


def strategy(columns: tuple[str, ...], dp: int) -> Value:
    """Return how each column is split over data-parallel ranks."""
    return tuple((dp, 1, 1, 1) if column == "attention_mask" else (dp, 1) for column in columns)


def loader_row(version: str) -> Row:
    """Return the row of the type of loader."""
    kinds = f"{LOADER}datasets_type"
    path = "data.format"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        kind = data_format(job)
        if kind == "open":
            return
        if kind in ("text", "messages"):
            why = "its loaders take Megatron token files, token numbers with labels (launch tokenize), and instruction "
            why += "data with Alpaca's columns: tokenize first"
            forms = ("megatron",) if job.task.type == "pretrain" else ("tokenized",)
            raise Unsupported(path, why, tuple(f"{path}={form}" for form in forms))
        require(kind != "mock", path, "it has no mock data that can be trained on", f"{path}=megatron")
        require(kind != "hub" or version != "1.6.0", path, "version 1.6 has no HFDataLoader", f"{path}=megatron")
        tokens = COMMON if version == "1.6.0" else HUB
        yield TYPE, {"hub": HUB, "tokenized": tokens, "mindrecord": RECORDS}.get(kind, MEGATRON)
        if kind in ("megatron", "sample"):
            yield kinds, "GPTDataset"

    def read(view: NativeView) -> Mapping[str, Value]:
        names = {MEGATRON: "megatron", HUB: "hub", RECORDS: "mindrecord"}
        if is_tokenized_file(view):
            view.take(TYPE)
            return {path: "tokenized"}
        if view.peek(TYPE) not in names:
            return {}
        drop(view, {kinds: "GPTDataset"})
        return {path: names[view.take(TYPE)]}

    return Row(fields=(path,), flags=(TYPE, kinds), emit=emit, read=read)


def mask_rows() -> tuple[Row, ...]:
    """Return the rows of the model section that choose the attention kernel and its mask."""
    path = "kernels.attention_mask"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        why = "masks within documents exist only in its flash attention"
        on = uses_flash(job)
        require(on or not job.data.reset_attention_mask, "data.reset_attention_mask", why)
        why = "a mask inside the kernel needs flash attention (transformer_config.py:2409 @2.1.0)"
        require(on or job.kernels.attention_mask != "compressed", path, why, f"{path}=full")
        # With context parallelism its checks read the file itself, not the default (tools/check_rules.py:189 @2.1.0).
        if job.kernels.attention_backend is not None or job.parallel.cp > 1:
            yield _FLASH, on
        mask = mask_of(job)
        if mask in ("documents", "compressed"):
            yield _DOCUMENTS if mask == "documents" else _COMPRESSED, True

    def read(view: NativeView) -> Mapping[str, Value]:
        found: dict[str, Value] = {}
        mask, plain = mask_of_file(view), plain_mask_of_file(view)
        if view.has(_FLASH):
            found["kernels.attention_backend"] = "flash" if view.take(_FLASH) else "unfused"
        drop(view, {_DOCUMENTS: mask == "documents", _COMPRESSED: mask == "compressed"})
        is_given = is_file(view) or any(name.startswith(MODEL) for name in view.values)
        if is_given and mask != "documents" and mask != plain:
            found[path] = mask
        return found

    note = "flash is MindFormers' default; fused and auto are flash here"
    flags = (_FLASH, _COMPRESSED, _DOCUMENTS)
    return (Row(fields=("kernels.attention_backend", path), flags=flags, emit=emit, read=read, note=note),)


def columns_row() -> Row:
    """Return the row of the columns that the loader returns and the model takes."""
    path = "data.columns"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        by_columns = is_megatron(job) or is_hub(job) or is_tokenized(job)
        if by_columns or job.data.columns:
            yield _COLUMN_FLAG, _columns(job)
        if by_columns:
            yield _ARGUMENTS, _columns(job)

    def read(view: NativeView) -> Mapping[str, Value]:
        written = frozen(view.peek(_COLUMN_FLAG))
        written_here = view.peek(TYPE) in (MEGATRON, HUB) or is_tokenized_file(view)
        fallback = columns_of_file(view) if written_here or not is_file(view) else None
        names = fallback if written is None else written
        view.take(_COLUMN_FLAG)
        if fallback is not None:
            drop(view, {_ARGUMENTS: names})
        return {} if names == fallback else {path: names}

    note = "the columns that the model takes; with a mask as the fifth"
    return Row(
        fields=(path, "kernels.attention_mask"), flags=(_COLUMN_FLAG, _ARGUMENTS), emit=emit, read=read, note=note
    )


def strategy_row() -> Row:
    """Return the row of `dataset_strategy`, which splits every column over the data-parallel ranks."""

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        dp = data_parallel(job)
        known = is_megatron(job) or is_hub(job) or is_tokenized(job) or job.data.columns
        if dp is not None and known and not job.graph.full_batch:
            yield _STRATEGY, strategy(_columns(job), dp)

    def read(view: NativeView) -> Mapping[str, Value]:
        names = frozen(view.peek(_COLUMN_FLAG)) or columns_of_file(view)
        drop(view, {_STRATEGY: strategy(names, view.peek("parallel_config.data_parallel", 1))})
        return {}

    return Row(fields=("parallel.dp",), flags=(_STRATEGY,), emit=emit, read=read, derived=True)
