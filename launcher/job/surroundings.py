"""What surrounds training: data, tokenizer, logs, evaluation, profiler, faults."""

from dataclasses import dataclass

from launcher.job.option import option
from launcher.job.services import ErrorInjection, OneLogger, Straggler

_MEGATRON = "Megatron-LM arguments.py"
_HF = "Hugging Face PretrainedConfig"
_HF_TOKENS = "Hugging Face SpecialTokensMixin"
_HF_GENERATION = "Hugging Face GenerationConfig"


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """Where samples come from."""

    paths: tuple[str, ...] = option(
        (),
        "Files, prefixes of .bin/.idx pairs (with weights before them if mixed), or dataset names.",
        affects_training=True,
    )
    format: str | None = option(
        None,
        "Megatron's token files, JSONL of text or chat messages, a hub name, the shipped sample text, mock tokens, or "
        "MindSpore's record files.",
        choices=("megatron", "text", "messages", "hub", "sample", "mock", "mindrecord"),
        affects_training=True,
    )
    validation_paths: tuple[str, ...] = option((), "Data of the evaluation; none: a share of paths.")
    split: str | None = option(
        None, "Shares of training, validation and test.", source=f"{_MEGATRON} --split", affects_training=True
    )
    validation_ratio: float | None = option(None, "Share kept for evaluation.", minimum=0, affects_training=True)
    test_paths: tuple[str, ...] = option((), "Data of the test after training.", source=f"{_MEGATRON} --test-data-path")
    paths_file: str | None = option(
        None, "File that holds what paths would.", source=f"{_MEGATRON} --data-args-path", affects_training=True
    )
    split_paths_file: str | None = option(
        None,
        "JSON file that holds what paths, validation_paths and test_paths would.",
        source=f"{_MEGATRON} --per-split-data-args-path",
        affects_training=True,
    )
    object_storage_cache: str | None = option(
        None,
        "Directory of the indices of token files that lie in an object store (s3://).",
        source=f"{_MEGATRON} --object-storage-cache-path, --s3-cache-path",
    )
    order: str | None = option(
        None,
        "How samples are drawn: one after the other, shuffled in each epoch, or by code of the user's.",
        source=f"{_MEGATRON} --dataloader-type",
        choices=("single", "cyclic", "external"),
        affects_training=True,
    )
    mmap: bool | None = option(
        None, "Token files are mapped into memory instead of read.", source=f"{_MEGATRON} --no-mmap-bin-files"
    )
    index_threads: int | None = option(
        None, "Threads that build sample indices.", source=f"{_MEGATRON} --num-dataset-builder-threads", minimum=1
    )
    cache_path: str | None = option(None, "Directory of sample indices.", source=f"{_MEGATRON} --data-cache-path")
    num_workers: int | None = option(
        None, "Processes that load data, per device.", source=f"{_MEGATRON} --num-workers", minimum=0
    )
    worker_processes: bool | None = option(
        None, "Load with processes instead of threads.", source="MindSpore python_multiprocessing"
    )
    prefetch: int | None = option(None, "Batches prepared ahead.", source="MindSpore prefetch_size", minimum=1)
    numa: bool | None = option(None, "Bind loaders to the device's NUMA node.", source="MindSpore numa_enable")
    num_preprocess: int | None = option(None, "Processes that tokenize before training.", minimum=1)
    shuffle: bool | None = option(None, "Shuffle the samples.", affects_training=True)
    shuffle_buffer_size: int | None = option(
        None,
        "Samples among which streamed data is shuffled.",
        unit="samples",
        source="Hugging Face IterableDataset.shuffle",
        minimum=1,
        affects_training=True,
    )
    seed: int | None = option(None, "Seed of the order of samples; none: the job's.", minimum=0, affects_training=True)
    drop_last: bool | None = option(None, "Leave out the last, incomplete batch.", affects_training=True)
    repeat: int | None = option(
        None, "Times that the data are repeated within one epoch.", minimum=1, affects_training=True
    )
    columns: tuple[str, ...] = option(
        (), "Columns that samples have; none: those of the loader.", affects_training=True
    )
    eod_token_id: int | None = option(
        None,
        "Token that ends a document; none: the loader knows it.",
        source="MindFormers GPTDataset eod",
        affects_training=True,
    )
    pad_token_id: int | None = option(None, "Token that fills a sequence.", source="MindFormers GPTDataset pad")
    ignore_token_id: int | None = option(
        None, "Label that the loss leaves out; none: -100.", source="MindFormers LlamaConfig", affects_training=True
    )
    max_documents: int | None = option(
        None, "Most documents in one sequence.", source="MindFormers eod_pad_length", minimum=1, affects_training=True
    )
    sharding: bool | None = option(
        None,
        "Random order: each data-parallel rank draws from its own share of the samples instead of from all.",
        source=f"{_MEGATRON} --no-data-sharding",
        affects_training=True,
    )
    streaming: bool | None = option(None, "Read samples while training instead of before.", affects_training=True)
    lazy_tokenize: bool | None = option(None, "Tokenize while training.")
    reset_position_ids: bool | None = option(
        None,
        "Positions start anew after each document.",
        source=f"{_MEGATRON} --reset-position-ids",
        affects_training=True,
    )
    reset_attention_mask: bool | None = option(
        None, "No attention across documents.", source=f"{_MEGATRON} --reset-attention-mask", affects_training=True
    )
    eod_mask_loss: bool | None = option(
        None, "No loss on end-of-document tokens.", source=f"{_MEGATRON} --eod-mask-loss", affects_training=True
    )
    template: str | None = option(None, "Chat template by name; none: the tokenizer's.", affects_training=True)
    system: str | None = option(None, "System prompt put before every chat.", affects_training=True)
    enable_thinking: bool | None = option(
        None,
        "Chats of hybrid models are written with thinking or without; none: as the template has it.",
        source="Qwen3 chat template enable_thinking",
        affects_training=True,
    )
    self_cognition_author: str | None = option(None, "Author put into self-cognition data.", affects_training=True)
    self_cognition_name: str | None = option(None, "Model name put into self-cognition data.", affects_training=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokenizer:
    """How text becomes tokens."""

    path: str | None = option(None, "Tokenizer directory; none: the model's.", affects_training=True)
    type: str | None = option(
        None,
        "Tokenizer class; none: Hugging Face.",
        source=f"{_MEGATRON} --tokenizer-type",
        choices=("HuggingFaceTokenizer", "NullTokenizer", "Llama2Tokenizer", "SentencePieceTokenizer", "TikTokenizer"),
        affects_training=True,
    )
    padded_vocab_size: int | None = option(
        None, "Vocabulary after padding; none: the next multiple.", unit="tokens", minimum=1, affects_training=True
    )
    make_vocab_size_divisible_by: int | None = option(
        None,
        "Pad the vocabulary to a multiple of this times tp.",
        source=f"{_MEGATRON}",
        minimum=1,
        affects_training=True,
    )
    vocab_file: str | None = option(
        None,
        "Vocabulary of a tokenizer that is made of files.",
        source=f"{_MEGATRON} --vocab-file",
        affects_training=True,
    )
    merge_file: str | None = option(
        None,
        "Merges of a byte-pair tokenizer that is made of files.",
        source=f"{_MEGATRON} --merge-file",
        affects_training=True,
    )
    extra_ids: int | None = option(
        None,
        "Further tokens of the vocabulary.",
        source=f"{_MEGATRON} --vocab-extra-ids",
        minimum=0,
        affects_training=True,
    )
    tiktoken_pattern: str | None = option(
        None, "TikTokenizer: how text is split first.", source=f"{_MEGATRON} --tiktoken-pattern", affects_training=True
    )
    tiktoken_special_tokens: tuple[str, ...] = option(
        (), "TikTokenizer: special tokens.", source=f"{_MEGATRON} --tiktoken-special-tokens", affects_training=True
    )
    tiktoken_num_special_tokens: int | None = option(
        None,
        "TikTokenizer: places of special tokens.",
        source=f"{_MEGATRON} --tiktoken-num-special-tokens",
        minimum=0,
        affects_training=True,
    )
    trust_remote_code: bool | None = option(None, "Run tokenizer code from the model directory.")
    bos_token: str | None = option(
        None, "Text of the token that begins a text; none: the tokenizer's.", source=_HF_TOKENS
    )
    eos_token: str | None = option(
        None, "Text of the token that ends a text; none: the tokenizer's.", source=_HF_TOKENS
    )
    pad_token: str | None = option(
        None, "Text of the token that fills a sequence; none: the tokenizer's.", source=_HF_TOKENS
    )
    unk_token: str | None = option(None, "Text of the token of unknown text; none: the tokenizer's.", source=_HF_TOKENS)
    bos_token_id: int | None = option(None, "Token that begins a text; none: the tokenizer's.", source=_HF)
    eos_token_id: tuple[int, ...] = option((), "Tokens that end a text; none: the tokenizer's.", source=_HF)
    pad_token_id: int | None = option(None, "Token that fills a sequence; none: the tokenizer's.", source=_HF)


@dataclass(frozen=True, slots=True, kw_only=True)
class Logging:
    """What is written while training."""

    interval: int = option(
        1, "Steps between log lines.", unit="iterations", source=f"{_MEGATRON} --log-interval", minimum=1
    )
    tensorboard_dir: str | None = option(
        None, "Directory of TensorBoard events.", source=f"{_MEGATRON} --tensorboard-dir"
    )
    tensorboard_interval: int | None = option(
        None,
        "Steps between TensorBoard events.",
        unit="iterations",
        source=f"{_MEGATRON} --tensorboard-log-interval",
        minimum=1,
    )
    tensorboard_queue_size: int | None = option(
        None,
        "TensorBoard events kept before they are written.",
        source=f"{_MEGATRON} --tensorboard-queue-size",
        minimum=1,
    )
    wandb_project: str | None = option(None, "Weights & Biases project.", source=f"{_MEGATRON} --wandb-project")
    wandb_name: str | None = option(None, "Weights & Biases run.", source=f"{_MEGATRON} --wandb-exp-name")
    wandb_dir: str | None = option(
        None, "Directory of Weights & Biases' files.", source=f"{_MEGATRON} --wandb-save-dir"
    )
    level: int | None = option(
        None,
        "Python's level of messages: 10 debug, 20 info, 30 warning.",
        source=f"{_MEGATRON} --logging-level",
        minimum=0,
    )
    progress: bool | None = option(None, "Keep a file of how far training came.", source=f"{_MEGATRON} --log-progress")
    loss_scale: bool | None = option(
        None, "Write the loss scale to TensorBoard.", source=f"{_MEGATRON} --no-log-loss-scale-to-tensorboard"
    )
    world_size: bool | None = option(
        None,
        "Write the number of processes to TensorBoard too.",
        source=f"{_MEGATRON} --log-world-size-to-tensorboard",
    )
    experts_by_layer: bool | None = option(
        None, "Log the balancing loss of every layer.", source=f"{_MEGATRON} --moe-per-layer-logging"
    )
    config_dir: str | None = option(
        None, "Directory that gets a file of the settings of every module.", source=f"{_MEGATRON} --config-logger-dir"
    )
    one_logger: OneLogger = OneLogger()
    straggler: Straggler = Straggler()
    throughput: bool | None = option(None, "Log TFLOP/s per device.", source=f"{_MEGATRON} --log-throughput")
    params_norm: bool | None = option(None, "Log the norm of the weights.", source=f"{_MEGATRON} --log-params-norm")
    zero_gradients: bool | None = option(
        None, "Log how many gradients are zero.", source=f"{_MEGATRON} --log-num-zeros-in-grad"
    )
    timer_level: int | None = option(
        None, "What is timed: 0 iterations, 1 their parts, 2 all.", source=f"{_MEGATRON} --timing-log-level", minimum=0
    )
    timer_ranks: str | None = option(
        None,
        "Timers of which ranks are logged: the slowest, slowest and fastest, or all.",
        source=f"{_MEGATRON} --timing-log-option",
        choices=("max", "minmax", "all"),
    )
    timer_barrier: bool | None = option(
        None,
        "Ranks wait for each other before the parts of a step are timed.",
        source=f"{_MEGATRON} --no-barrier-with-level-1-timing",
    )
    timers: bool | None = option(
        None, "Write timers to TensorBoard too.", source=f"{_MEGATRON} --log-timers-to-tensorboard"
    )
    memory: bool | None = option(
        None, "Write device memory to TensorBoard too.", source=f"{_MEGATRON} --log-memory-to-tensorboard"
    )
    perplexity: bool | None = option(
        None,
        "Write the perplexity of evaluations to TensorBoard too.",
        source=f"{_MEGATRON} --log-validation-ppl-to-tensorboard",
    )
    loss: bool | None = option(None, "Log loss and speed; none: yes.", source="MindFormers MFLossMonitor")
    dir: str | None = option(
        None, "Folder of what the backend itself writes; none: below output_dir.", source="MindFormers output_dir"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Evaluation on held-out data."""

    interval: int | None = option(
        None, "Steps between evaluations.", unit="iterations", source=f"{_MEGATRON} --eval-interval", minimum=1
    )
    iters: int | None = option(
        None, "Batches per evaluation; 0: none.", unit="iterations", source=f"{_MEGATRON} --eval-iters", minimum=0
    )
    epochs: int | None = option(
        None, "Passes between evaluations.", unit="epochs", source="MindFormers eval_epoch_interval", minimum=1
    )
    metric: str | None = option(None, "What is measured; none: the loss.", source="MindFormers metric.type")
    shuffle: bool | None = option(None, "Shuffle the evaluation's samples.", source="MindFormers eval_dataset")
    drop_last: bool | None = option(
        None, "Leave out the evaluation's last, incomplete batch.", source="MindFormers eval_dataset"
    )
    columns: tuple[str, ...] = option(
        (), "Columns that the evaluation's samples have; none: those of training.", source="MindFormers eval_dataset"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """How text is generated with the model: beside training, and within it where answers are drawn (GRPO, GKD)."""

    do_sample: bool | None = option(None, "Draw tokens instead of the likeliest.", source=_HF_GENERATION)
    temperature: float | None = option(
        None, "Divisor of the logits before a token is drawn.", source=_HF_GENERATION, minimum=0, affects_training=True
    )
    top_k: int | None = option(
        None, "Tokens drawn from; 0 (vLLM: -1): all.", source=_HF_GENERATION, minimum=-1, affects_training=True
    )
    top_p: float | None = option(
        None, "Probability of the tokens drawn from.", source=_HF_GENERATION, minimum=0, affects_training=True
    )
    repetition_penalty: float | None = option(
        None,
        "Divisor of the logits of tokens that are there; 1: none.",
        source=_HF_GENERATION,
        minimum=0,
        affects_training=True,
    )
    max_new_tokens: int | None = option(
        None, "Longest answer, without the prompt.", unit="tokens", source=_HF_GENERATION, minimum=1
    )
    max_length: int | None = option(
        None, "Longest text, prompt included.", unit="tokens", source=_HF_GENERATION, minimum=1
    )
    use_cache: bool | None = option(None, "Keep keys and values of earlier tokens.", source=_HF_GENERATION)
    batch_size: int | None = option(None, "Prompts at once.", source="MindFormers LlamaConfig", minimum=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiler:
    """Traces of chosen steps."""

    enabled: bool = option(False, "Write traces.", source=f"{_MEGATRON} --profile")
    start_step: int | None = option(None, "First step traced.", unit="iterations", minimum=0)
    end_step: int | None = option(None, "Step at which tracing ends.", unit="iterations", minimum=0)
    ranks: tuple[int, ...] = option((), "Ranks traced; none: rank 0.")
    path: str | None = option(None, "Directory of traces.")
    level: int | None = option(
        None,
        "What CANN's profiler collects: 0 operators, 1 also kernels and communication, 2 also the host's; -1: neither.",
        source="MindSpeed-LLM --profile-level",
        minimum=-1,
    )
    workload_inspector: bool | None = option(
        None, "Serve measurements to the workload inspector.", source=f"{_MEGATRON} --run-workload-inspector-server"
    )
    memory: bool | None = option(None, "Trace memory too.", source="MindFormers profile_memory")
    communication: bool | None = option(None, "Trace communication too.", source="MindFormers profile_communication")
    from_start: bool | None = option(
        None, "Start the profiler before the graph is built.", source="MindFormers init_start_profile"
    )
    memory_history: bool | None = option(
        None,
        "Record every allocation of device memory, with what made it.",
        source=f"{_MEGATRON} --record-memory-history",
    )
    memory_snapshot_path: str | None = option(
        None, "File of the recorded allocations.", source=f"{_MEGATRON} --memory-snapshot-path"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultTolerance:
    """What happens when a rank fails or hangs."""

    max_restarts: int = option(
        0, "Restarts of all ranks, from the last complete checkpoint, after one fails or hangs.", minimum=0
    )
    hang_minutes: float | None = option(
        None,
        "Minutes without a new iteration in the log after which the ranks count as hung and are ended; none: never.",
        unit="minutes",
        minimum=0,
    )
    timeout_minutes: int | None = option(
        None,
        "Collectives that take longer end the job.",
        unit="minutes",
        source=f"{_MEGATRON} --distributed-timeout-minutes",
        minimum=1,
    )
    check_for_nan: bool | None = option(
        None,
        "End training where the loss or a gradient is not a number.",
        source=f"{_MEGATRON} --no-check-for-nan-in-loss-and-grad",
    )
    check_for_spiky_loss: bool | None = option(
        None, "Count a loss that leaps as a fault.", source=f"{_MEGATRON} --check-for-spiky-loss"
    )
    check_for_large_grads: bool | None = option(
        None, "Count a gradient that leaps as a fault.", source=f"{_MEGATRON} --check-for-large-grads"
    )
    rerun: str | None = option(
        None,
        "Whether a step is computed again where its result is not plausible.",
        source=f"{_MEGATRON} --rerun-mode",
        choices=("disabled", "validate_results", "report_stats"),
    )
    rejected_results: str | None = option(
        None,
        "File of steps whose results were found wrong; they are not taken for granted again.",
        source=f"{_MEGATRON} --result-rejected-tracker-filename",
    )
    error_injection: ErrorInjection = ErrorInjection()
    test_mode: bool | None = option(
        None,
        "Compare the weights of query and key norms over the ranks in every step.",
        source=f"{_MEGATRON} --test-mode",
    )
    ft_package: bool | None = option(
        None,
        "Heartbeats to NVIDIA's fault-tolerance package, which ends and restarts ranks that hang.",
        source=f"{_MEGATRON} --enable-ft-package",
    )
    ft_timeouts: bool | None = option(
        None, "Let that package learn its time-outs from the run.", source=f"{_MEGATRON} --calc-ft-timeouts"
    )
    autoresume: bool | None = option(
        None, "End and restart as the scheduler of NVIDIA's clusters asks.", source=f"{_MEGATRON} --adlr-autoresume"
    )
    autoresume_interval: int | None = option(
        None,
        "Steps between such questions.",
        unit="iterations",
        source=f"{_MEGATRON} --adlr-autoresume-interval",
        minimum=1,
    )
    weight_hash_interval: int | None = option(
        None,
        "Steps between comparisons of the weights of data-parallel replicas.",
        unit="iterations",
        source=f"{_MEGATRON} --check-weight-hash-across-dp-replicas-interval",
        minimum=1,
    )
    exit_on_signal: bool | None = option(
        None, "Write a checkpoint and end at SIGTERM.", source=f"{_MEGATRON} --exit-signal-handler"
    )
