"""What surrounds training: data, tokenizer, checkpoints, logs, evaluation, profiler, faults."""

from dataclasses import dataclass

from launcher.job.option import option

_MEGATRON = "Megatron-LM arguments.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """Where samples come from."""

    paths: tuple[str, ...] = option(
        (), "Files, prefixes of .bin/.idx pairs (with weights before them if mixed), or dataset names.", trains=True
    )
    format: str | None = option(
        None,
        "Megatron's token files, JSONL of text or chat messages, a hub name, the shipped sample text, or mock tokens.",
        choices=("megatron", "text", "messages", "hub", "sample", "mock"),
        trains=True,
    )
    validation_paths: tuple[str, ...] = option((), "Data of the evaluation; none: a share of paths.")
    split: str | None = option(
        None, "Shares of training, validation and test.", source=f"{_MEGATRON} --split", trains=True
    )
    validation_ratio: float | None = option(None, "Share kept for evaluation.", minimum=0, trains=True)
    cache_path: str | None = option(None, "Directory of sample indices.", source=f"{_MEGATRON} --data-cache-path")
    num_workers: int | None = option(
        None, "Processes that load data, per device.", source=f"{_MEGATRON} --num-workers", minimum=0
    )
    num_preprocess: int | None = option(None, "Processes that tokenize before training.", minimum=1)
    shuffle: bool | None = option(None, "Shuffle the samples.", trains=True)
    streaming: bool | None = option(None, "Read samples while training instead of before.", trains=True)
    lazy_tokenize: bool | None = option(None, "Tokenize while training.")
    reset_position_ids: bool | None = option(
        None, "Positions start anew after each document.", source=f"{_MEGATRON} --reset-position-ids", trains=True
    )
    reset_attention_mask: bool | None = option(
        None, "No attention across documents.", source=f"{_MEGATRON} --reset-attention-mask", trains=True
    )
    eod_mask_loss: bool | None = option(
        None, "No loss on end-of-document tokens.", source=f"{_MEGATRON} --eod-mask-loss", trains=True
    )
    template: str | None = option(None, "Chat template by name; none: the tokenizer's.", trains=True)
    system: str | None = option(None, "System prompt put before every chat.", trains=True)
    self_cognition_author: str | None = option(None, "Author put into self-cognition data.", trains=True)
    self_cognition_name: str | None = option(None, "Model name put into self-cognition data.", trains=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokenizer:
    """How text becomes tokens."""

    path: str | None = option(None, "Tokenizer directory; none: the model's.", trains=True)
    type: str | None = option(
        None,
        "Tokenizer class; none: Hugging Face.",
        source=f"{_MEGATRON} --tokenizer-type",
        choices=("HuggingFaceTokenizer", "NullTokenizer", "Llama2Tokenizer", "SentencePieceTokenizer", "TikTokenizer"),
        trains=True,
    )
    padded_vocab_size: int | None = option(
        None, "Vocabulary after padding; none: the next multiple.", unit="tokens", minimum=1, trains=True
    )
    make_vocab_size_divisible_by: int | None = option(
        None, "Pad the vocabulary to a multiple of this times tp.", source=f"{_MEGATRON}", minimum=1, trains=True
    )
    trust_remote_code: bool | None = option(None, "Run tokenizer code from the model directory.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What is loaded at the start and saved on the way."""

    save: str | None = option(None, "Directory of checkpoints; none: nothing is saved.", source=f"{_MEGATRON} --save")
    save_interval: int | None = option(
        None, "Steps between checkpoints.", unit="iterations", source=f"{_MEGATRON} --save-interval", minimum=1
    )
    load: str | None = option(
        None,
        "Checkpoint in the backend's own format to start or resume from.",
        source=f"{_MEGATRON} --load",
        trains=True,
    )
    finetune: bool | None = option(
        None,
        "Load weights only: iteration, optimizer and random state start anew.",
        source=f"{_MEGATRON} --finetune",
        trains=True,
    )
    format: str | None = option(
        None, "Format written.", source=f"{_MEGATRON} --ckpt-format", choices=("torch_dist", "torch", "safetensors")
    )
    save_safetensors: bool | None = option(None, "Also write Hugging Face safetensors.")
    save_total_limit: int | None = option(None, "Checkpoints kept.", minimum=1)
    async_save: bool | None = option(None, "Write while training goes on.", source=f"{_MEGATRON} --async-save")
    no_save_optim: bool | None = option(None, "Do not save the optimizer.", source=f"{_MEGATRON} --no-save-optim")
    no_save_rng: bool | None = option(None, "Do not save random states.", source=f"{_MEGATRON} --no-save-rng")
    no_load_optim: bool | None = option(
        None, "Do not load the optimizer.", source=f"{_MEGATRON} --no-load-optim", trains=True
    )
    no_load_rng: bool | None = option(
        None, "Do not load random states.", source=f"{_MEGATRON} --no-load-rng", trains=True
    )
    optimizer_fully_reshardable: bool | None = option(
        None,
        "Save the optimizer so that it resumes at any layout.",
        source=f"{_MEGATRON} --dist-ckpt-optim-fully-reshardable",
    )
    exit_on_missing: bool | None = option(
        None, "Stop if load names no checkpoint.", source=f"{_MEGATRON} --exit-on-missing-checkpoint"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Logging:
    """What is written while training."""

    interval: int = option(
        1, "Steps between log lines.", unit="iterations", source=f"{_MEGATRON} --log-interval", minimum=1
    )
    tensorboard_dir: str | None = option(
        None, "Directory of TensorBoard events.", source=f"{_MEGATRON} --tensorboard-dir"
    )
    wandb_project: str | None = option(None, "Weights & Biases project.", source=f"{_MEGATRON} --wandb-project")
    wandb_name: str | None = option(None, "Weights & Biases run.", source=f"{_MEGATRON} --wandb-exp-name")
    throughput: bool | None = option(None, "Log TFLOP/s per device.", source=f"{_MEGATRON} --log-throughput")


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Evaluation on held-out data."""

    interval: int | None = option(
        None, "Steps between evaluations.", unit="iterations", source=f"{_MEGATRON} --eval-interval", minimum=1
    )
    iters: int | None = option(
        None, "Batches per evaluation; 0: none.", unit="iterations", source=f"{_MEGATRON} --eval-iters", minimum=0
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiler:
    """Traces of chosen steps."""

    enabled: bool = option(False, "Write traces.", source=f"{_MEGATRON} --profile")
    start_step: int | None = option(None, "First step traced.", unit="iterations", minimum=0)
    end_step: int | None = option(None, "Step at which tracing ends.", unit="iterations", minimum=0)
    ranks: tuple[int, ...] = option((), "Ranks traced; none: rank 0.")
    path: str | None = option(None, "Directory of traces.")


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultTolerance:
    """What happens when a rank fails or hangs."""

    max_restarts: int = option(0, "Restarts from the last checkpoint.", source="torchrun --max-restarts", minimum=0)
    timeout_minutes: int | None = option(
        None,
        "Collectives that take longer end the job.",
        unit="minutes",
        source=f"{_MEGATRON} --distributed-timeout-minutes",
        minimum=1,
    )
