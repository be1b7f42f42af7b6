"""What Megatron-LM's arguments without a canonical field do, for whoever takes a script to another stack.

Read in megatron/training/arguments.py and megatron/core/{transformer/transformer_config,model_parallel_config}.py at
core_v0.12.1 and core_v0.16.1.
"""

from backends.megatron_lm.own_layers import LAYERS, passed
from launcher.translate.own import MEMORY, MODEL, NOTHING, OUTPUT, SPEED, START, TRAINING, Own, kind, own

_LOOP = "it belongs to Megatron-LM's own training loop"
_CORE = "it is a switch of megatron-core's layers"
_TE = "it is a matter of Transformer Engine, NVIDIA's library of layers"
_NVIDIA = "it is made for NVIDIA's hardware and libraries"
_DDP = "it tunes Megatron-core's distributed data parallelism"
_CKPT = "it belongs to Megatron-LM's own checkpoints"
_DATA = "it belongs to Megatron-LM's own data sets"
_PROGRAM = "it is for another program of Megatron-LM than pre-training of language models"


_BATCH = (
    own(
        "dataloader-type",
        "chooses the order in which samples are drawn",
        TRAINING,
        _DATA,
        "data.shuffle=true",
        neutral=("single",),
        without="the other stack draws samples in its own order",
        source="megatron/training/datasets/data_samplers.py @core_v0.12.1",
    ),
    own(
        "phase-transition-iterations",
        "restarts the order of data at these steps",
        TRAINING,
        _LOOP,
        without="data goes on in one order",
    ),
    own(
        "exit-signal exit-signal-handler-for-dataloader",
        "ends the run before its last step, after a checkpoint",
        OUTPUT,
        _LOOP,
        without="the run goes on to its last step; the scheduler's time limit ends it",
    ),
)

_OPTIMIZER = (
    own(
        "no-weight-decay-cond-type",
        "chooses which weights decay",
        TRAINING,
        "it is a condition of Megatron-LM's parameter groups",
        without="norms and biases do not decay",
    ),
    own(
        "warmup",
        "says the warm-up in percent of the decay (deprecated)",
        TRAINING,
        "it is a name of old versions",
        "schedule.lr_warmup_fraction=0.01",
    ),
    own(
        "muon-*",
        "tunes the optimizer Muon",
        TRAINING,
        "each stack that has Muon has its own settings of it",
        "optimizer.type=adam",
        without="Muon's own defaults there stand",
        read=lambda job: (
            "muon" in str(job.optimizer.type or "") or "muon" in str(job.backend.args.get("optimizer", ""))
        ),
    ),
    own(
        "optimizer-cpu-offload optimizer-offload-fraction",
        "keeps and updates the optimizer's states in host memory",
        MEMORY,
        "it is Megatron-core's hybrid optimizer",
        "offload.optimizer=true",
    ),
    own(
        "no-check-for-nan-in-loss-and-grad",
        "chooses which suspicious values stop the run",
        OUTPUT,
        _LOOP,
        without="the other stack's own checks stand; healthy steps are the same",
    ),
    own(
        "load-main-params-from-ckpt",
        "starts the optimizer's fp32 weights from the checkpoint's fp32 weights",
        TRAINING,
        _CKPT,
        without="they start from the rounded weights",
    ),
)

_DATA_ROWS = (
    own("mid-level-dataset-surplus", "builds that much more of each data set than is needed", NOTHING, _DATA),
    own("no-create-attention-mask-in-dataloader", "leaves the causal mask to the kernel", SPEED, _DATA),
    own(
        "dataloader-fast-cache-load dataloader-defer-npy-index-mmap disable-msc per-dataset-sequences-path",
        "changes how data files are opened",
        SPEED,
        _DATA,
    ),
    own(
        "fim-*",
        "moves the middle of documents to their end",
        TRAINING,
        _DATA,
        without="prepare the data so before",
        read=passed("fim-data"),
    ),
    own(
        "allow-ambiguous-pad-tokens",
        "lets padding be a token that data uses",
        TRAINING,
        _DATA,
        without="the loss leaves padding out",
    ),
    own(
        "mask-prob short-seq-prob sample-rate bert-no-binary-head",
        "is for BERT and T5",
        NOTHING,
        _PROGRAM,
    ),
    own(
        "tiktoken-* tokenizer-hf-* tokenizer-metadata tokenizer-sentencepiece-legacy tokenizer-special-tokens",
        "tunes how the tokenizer is read",
        TRAINING,
        _DATA,
        "tokenizer.path=DIR",
        without="the tokenizer is read as its own files say",
        read=lambda job: job.data.format not in ("megatron", "mock", None),
    ),
    own("return-document-ids", "hands document numbers to the model", NOTHING, _DATA),
    own(
        "full-validation multiple-validation-sets", "evaluates on all of, or on several, validation sets", OUTPUT, _LOOP
    ),
)

_CHECKPOINT = (
    own(
        "ckpt-* dist-ckpt-* async-*",
        "chooses how and how often checkpoints are written",
        OUTPUT,
        _CKPT,
        "checkpoint.save_interval=500",
    ),
    own("save-dgrads-interval save-wgrads-interval", "writes gradients to files", OUTPUT, _LOOP),
)

_OUTPUT_ROWS = (
    own(
        "log-* no-log-* tensorboard-* wandb-*",
        "chooses what is logged",
        OUTPUT,
        _LOOP,
        "logging.tensorboard_dir=DIR",
    ),
    own("use-pytorch-profiler", "measures with PyTorch's profiler", OUTPUT, _LOOP, "profiler.enabled=true"),
    own(
        "enable-experimental dump-param-to-param-group-map",
        "opens tools for developers",
        NOTHING,
        _LOOP,
    ),
    own("yaml-cfg", "reads the arguments from a YAML file", NOTHING, "launch import reads the file itself"),
)

_START = (
    own(
        "local-rank local_rank lazy-mpu-init "
        "disable-gloo-process-groups distributed-timeout-seconds-after-init fake-process-group",
        "chooses how processes find each other",
        START,
        _LOOP,
    ),
)

_GROUPS = (
    own("temperature top_k top_p", "chooses how answers are drawn", NOTHING, _PROGRAM, alone=True),
    kind(("inference",), "changes inference", NOTHING, _PROGRAM),
    kind(("vision",), "is for vision models (pretrain_vision_*.py)", NOTHING, _PROGRAM),
    kind(("biencoder",), "is for retrieval models (pretrain_ict.py)", NOTHING, _PROGRAM),
    own("retro-add-retriever", "adds a retriever to the model", MODEL, _PROGRAM),
    kind(("retro",), "shapes models with retrieval", NOTHING, _PROGRAM),
    own("perform-rl-step", "trains by reinforcement learning", MODEL, "RL is Megatron-LM's own loop since 0.16"),
    kind(
        ("rl",),
        "tunes reinforcement learning",
        MODEL,
        "RL is Megatron-LM's own loop since 0.16",
        read=passed("perform-rl-step"),
    ),
    kind(
        ("In-process restart", "ft_package", "rerun engine"),
        "finds and repairs broken or slow processes",
        START,
        _NVIDIA,
        "fault_tolerance.max_restarts=3",
    ),
    kind(("logging", "profiling"), "chooses what is logged", OUTPUT, _LOOP),
    kind(("checkpointing", "msc"), "chooses how checkpoints are kept", OUTPUT, _CKPT),
    kind(("validation",), "chooses how the model is evaluated", OUTPUT, _LOOP),
    kind(("distributed",), "tunes how processes talk", SPEED, _DDP),
    kind(("data and dataloader", "tokenizer"), "changes how data is read", TRAINING, _DATA),
    kind(
        (
            "learning rate",
            "learning rate and weight decay",
            "regularization",
            "mixed precision",
            "initialization",
            "RNG and initialization",
        ),
        "tunes the optimizer",
        TRAINING,
        _LOOP,
    ),
    kind(("training",), "tunes the training loop", TRAINING, _LOOP),
    kind(("Transformer-Engine",), "tunes Transformer Engine", TRAINING, _TE),
    kind(
        (
            "transformer configuration",
            "network size",
            "moe",
            "mla",
            "experimental",
            "heterogeneous architecture",
            "experimental_attention_variant",
        ),
        "changes the layers",
        MODEL,
        _CORE,
    ),
)

OWN: tuple[Own, ...] = (
    *_BATCH,
    *_OPTIMIZER,
    *LAYERS,
    *_DATA_ROWS,
    *_CHECKPOINT,
    *_OUTPUT_ROWS,
    *_START,
    *_GROUPS,
)


def rows() -> tuple[Own, ...]:
    """Return the table."""
    return OWN
