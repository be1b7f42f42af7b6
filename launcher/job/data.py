"""Data of training and validation: formats, paths, packing, loading."""

from launcher.job.option import option
from launcher.job.sources import ARGUMENTS
from launcher.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """Data of training and validation."""

    paths: tuple[str, ...] = option(
        (),
        "Files, prefixes of .bin/.idx pairs (with weights before them if mixed), or dataset names.",
        affects_training=True,
    )
    format: str | None = option(
        None,
        "Megatron's token files, JSONL of text, of chat messages or of token numbers and labels (tokenized), a hub "
        "name, the shipped sample text, mock tokens, or MindSpore's record files.",
        choices=("megatron", "text", "messages", "tokenized", "hub", "sample", "mock", "mindrecord"),
        affects_training=True,
    )
    validation_paths: tuple[str, ...] = option((), "Data of the evaluation; none: a share of paths.")
    split: str | None = option(
        None, "Shares of training, validation and test.", source=f"{ARGUMENTS} --split", affects_training=True
    )
    validation_ratio: float | None = option(None, "Share kept for evaluation.", minimum=0, affects_training=True)
    test_paths: tuple[str, ...] = option((), "Data of the test after training.", source=f"{ARGUMENTS} --test-data-path")
    paths_file: str | None = option(
        None, "File that lists the paths instead.", source=f"{ARGUMENTS} --data-args-path", affects_training=True
    )
    split_paths_file: str | None = option(
        None,
        "JSON file that lists paths, validation_paths and test_paths instead.",
        source=f"{ARGUMENTS} --per-split-data-args-path",
        affects_training=True,
    )
    object_storage_cache: str | None = option(
        None,
        "Directory of the indices of token files that lie in an object store (s3://).",
        source=f"{ARGUMENTS} --object-storage-cache-path, --s3-cache-path",
    )
    order: str | None = option(
        None,
        "Order of samples: sequential, shuffled in each epoch, or by the user's code.",
        source=f"{ARGUMENTS} --dataloader-type",
        choices=("single", "cyclic", "external"),
        affects_training=True,
    )
    mmap: bool | None = option(
        None, "Memory-map token files instead of reading them.", source=f"{ARGUMENTS} --no-mmap-bin-files"
    )
    index_threads: int | None = option(
        None, "Threads that build sample indices.", source=f"{ARGUMENTS} --num-dataset-builder-threads", minimum=1
    )
    cache_path: str | None = option(None, "Directory of sample indices.", source=f"{ARGUMENTS} --data-cache-path")
    num_workers: int | None = option(
        None, "Processes that load data, per device.", source=f"{ARGUMENTS} --num-workers", minimum=0
    )
    worker_processes: bool | None = option(
        None, "Load with processes instead of threads.", source="MindSpore python_multiprocessing"
    )
    prefetch: int | None = option(None, "Batches prefetched.", source="MindSpore prefetch_size", minimum=1)
    numa: bool | None = option(None, "Bind loaders to the device's NUMA node.", source="MindSpore numa_enable")
    num_preprocess: int | None = option(None, "Processes that tokenize before training.", minimum=1)
    shuffle: bool | None = option(None, "Shuffle the samples.", affects_training=True)
    shuffle_buffer_size: int | None = option(
        None,
        "Size of the shuffle buffer of streamed data.",
        unit="samples",
        source="Hugging Face IterableDataset.shuffle",
        minimum=1,
        affects_training=True,
    )
    seed: int | None = option(None, "Seed of the order of samples; none: the job's.", minimum=0, affects_training=True)
    drop_last: bool | None = option(None, "Drop the last, incomplete batch.", affects_training=True)
    repeat: int | None = option(
        None, "Times that the data are repeated within one epoch.", minimum=1, affects_training=True
    )
    columns: tuple[str, ...] = option(
        (), "Columns that samples have; none: those of the loader.", affects_training=True
    )
    eod_token_id: int | None = option(
        None,
        "Token that ends a document; none: the loader's own.",
        source="MindFormers GPTDataset eod",
        affects_training=True,
    )
    pad_token_id: int | None = option(None, "Token that fills a sequence.", source="MindFormers GPTDataset pad")
    ignore_token_id: int | None = option(
        None, "Label that the loss ignores; none: -100.", source="MindFormers LlamaConfig", affects_training=True
    )
    max_documents: int | None = option(
        None,
        "Maximum number of documents in one sequence.",
        source="MindFormers eod_pad_length",
        minimum=1,
        affects_training=True,
    )
    sharding: bool | None = option(
        None,
        "Random order: each data-parallel rank samples from its own shard instead of from all samples.",
        source=f"{ARGUMENTS} --no-data-sharding",
        affects_training=True,
    )
    streaming: bool | None = option(None, "Read samples while training instead of before.", affects_training=True)
    lazy_tokenize: bool | None = option(None, "Tokenize while training.")
    reset_position_ids: bool | None = option(
        None,
        "Reset positions after each document.",
        source=f"{ARGUMENTS} --reset-position-ids",
        affects_training=True,
    )
    reset_attention_mask: bool | None = option(
        None, "No attention across documents.", source=f"{ARGUMENTS} --reset-attention-mask", affects_training=True
    )
    eod_mask_loss: bool | None = option(
        None, "No loss on end-of-document tokens.", source=f"{ARGUMENTS} --eod-mask-loss", affects_training=True
    )
    template: str | None = option(None, "Chat template by name; none: the tokenizer's.", affects_training=True)
    system: str | None = option(None, "System prompt put before every chat.", affects_training=True)
    enable_thinking: bool | None = option(
        None,
        "Format chats of hybrid models with or without thinking; none: the template's default.",
        source="Qwen3 chat template enable_thinking",
        affects_training=True,
    )
    self_cognition_author: str | None = option(None, "Author put into self-cognition data.", affects_training=True)
    self_cognition_name: str | None = option(None, "Model name put into self-cognition data.", affects_training=True)
