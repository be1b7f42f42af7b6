"""Effects of Megatron-LM arguments without a canonical field, for porting a script to another backend.

Source: megatron/training/arguments.py and megatron/core/{transformer/transformer_config,model_parallel_config}.py
@core_v0.12.1 and core_v0.16.1.
"""

from backends.megatron_lm.mapping.tokenizer import tokenizer_kind
from backends.megatron_lm.native_only.layers import LAYERS, passed
from backends.megatron_lm.native_only.newer import NEWER
from backends.megatron_lm.native_only.newest import NEWEST
from backends.megatron_lm.native_only.single import SINGLE
from launcher.mapping.native_only import (
    MEMORY,
    MODEL,
    NOTHING,
    OUTPUT,
    SPEED,
    START,
    TRAINING,
    NativeOnlyArg,
    group_row,
    row,
)

_LOOP = "it belongs to Megatron-LM's own training loop"
_CORE = "it is a switch of megatron-core's layers"
_TE = "it is a matter of Transformer Engine, NVIDIA's library of layers"
_NVIDIA = "it is made for NVIDIA's hardware and libraries"
_DDP = "it tunes Megatron-core's distributed data parallelism"
_CKPT = "it belongs to Megatron-LM's own checkpoints"
_DATA = "it belongs to Megatron-LM's own data sets"
_PROGRAM = "it is for another program of Megatron-LM than pre-training of language models"


_BATCH = (
    row(
        "phase-transition-iterations",
        "restarts the order of data at these steps",
        TRAINING,
        _LOOP,
        without="data goes on in one order",
    ),
    row(
        "exit-signal exit-signal-handler-for-dataloader",
        "ends the run before its last step, after a checkpoint",
        OUTPUT,
        _LOOP,
        without="the run goes on to its last step; the scheduler's time limit ends it",
    ),
)

_OPTIMIZER = (
    row(
        "no-weight-decay-cond-type",
        "chooses which weights decay",
        TRAINING,
        "it is a condition of Megatron-LM's parameter groups",
        without="norms and biases do not decay",
    ),
    row(
        "warmup",
        "sets the warm-up in percent of the decay (deprecated)",
        TRAINING,
        "it is a name of old versions",
        "schedule.lr_warmup_fraction=0.01",
        no_field="The parser refuses it and names its successor, lr-warmup-fraction (schedule.lr_warmup_fraction).",
        refused_for="lr-warmup-fraction",
        source="megatron/training/arguments.py:417 @core_v0.16.1",
    ),
    row(
        "optimizer-cpu-offload optimizer-offload-fraction",
        "keeps and updates the optimizer's states in host memory",
        MEMORY,
        "it is Megatron-core's hybrid optimizer",
        "offload.optimizer=true",
    ),
    row(
        "load-main-params-from-ckpt",
        "starts the optimizer's fp32 weights from the checkpoint's fp32 weights",
        TRAINING,
        _CKPT,
        without="they start from the rounded weights",
    ),
)

_DATA_ROWS = (
    row("mid-level-dataset-surplus", "builds that much more of each data set than is needed", NOTHING, _DATA),
    row(
        "dataloader-fast-cache-load dataloader-defer-npy-index-mmap disable-msc per-dataset-sequences-path",
        "changes how data files are opened",
        SPEED,
        _DATA,
    ),
    row(
        "fim-*",
        "moves the middle of documents to their end",
        TRAINING,
        _DATA,
        without="prepare the data so before",
        read=passed("fim-data"),
    ),
    row(
        "vocab-size",
        "sets how large the vocabulary of a tokenizer without files is, or how much of a tiktoken file is used",
        MODEL,
        _DATA,
        "model.vocab_size={vocabulary}",
        without="set model.vocab_size, with NullTokenizer one more than this value",
        # Other tokenizers define their own size (training/tokenizer/tokenizer.py:64, :70 @core_v0.16.1).
        read=lambda job: tokenizer_kind(job) in ("NullTokenizer", "TikTokenizer") and job.model.vocab_size is None,
    ),
    row(
        "allow-ambiguous-pad-tokens",
        "lets padding be a token that data uses",
        TRAINING,
        _DATA,
        without="the loss leaves padding out",
    ),
    row(
        "mask-prob short-seq-prob bert-no-binary-head bert-embedder-type output-bert-embeddings decoder-num-layers "
        "decoder-seq-length",
        "is for BERT and T5",
        NOTHING,
        _PROGRAM,
        no_field="Only BERT and T5 read it (pretrain_bert.py, pretrain_t5.py).",
        source="megatron/legacy/model/bert_model.py:149 @core_v0.16.1; megatron/core/models/bert/bert_model.py:42 "
        "@core_v0.16.1; megatron/training/arguments.py:535 @core_v0.16.1; "
        "megatron/core/pipeline_parallel/schedules.py:526 @core_v0.16.1",
    ),
    row(
        "tokenizer-hf-* tokenizer-metadata tokenizer-sentencepiece-legacy tokenizer-special-tokens",
        "tunes how the tokenizer is read",
        TRAINING,
        _DATA,
        "tokenizer.path=DIR",
        without="the tokenizer is read as its files specify",
        read=lambda job: job.data.format not in ("megatron", "mock", None),
    ),
    row(
        "full-validation multiple-validation-sets", "evaluates on all of, or on several, validation sets", OUTPUT, _LOOP
    ),
)

_CHECKPOINT = (
    row(
        "dist-ckpt-* async-*",
        "chooses how and how often checkpoints are written",
        OUTPUT,
        _CKPT,
        "checkpoint.save_interval=500",
    ),
    row(
        "load-model-opt-format",
        "reads the checkpoint of a model that NVIDIA's modelopt has changed",
        MODEL,
        _CKPT,
        without="the weights are read as they were saved",
    ),
    row("save-dgrads-interval save-wgrads-interval", "writes gradients to files", OUTPUT, _LOOP),
)

_OUTPUT_ROWS = (
    row(
        "log-* wandb-*",
        "chooses what is logged",
        OUTPUT,
        _LOOP,
        "logging.tensorboard_dir=DIR",
    ),
    row("use-pytorch-profiler", "measures with PyTorch's profiler", OUTPUT, _LOOP, "profiler.enabled=true"),
    row(
        "enable-experimental dump-param-to-param-group-map",
        "opens tools for developers",
        NOTHING,
        _LOOP,
    ),
    row(
        "yaml-cfg",
        "reads the arguments from a YAML file",
        NOTHING,
        "launch import reads the file itself",
        no_field="It names a file that holds the arguments themselves; launch import reads the file.",
        source="megatron/training/arguments.py:105 @core_v0.16.1",
    ),
)

_START = (
    row(
        "local-rank local_rank lazy-mpu-init "
        "disable-gloo-process-groups distributed-timeout-seconds-after-init fake-process-group",
        "chooses how processes find each other",
        START,
        _LOOP,
    ),
)

_GROUPS = (
    row(
        "inference-batch-times-seqlen-threshold inference-dynamic-batching "
        "inference-dynamic-batching-buffer-guaranteed-fraction inference-dynamic-batching-buffer-overflow-factor "
        "inference-dynamic-batching-buffer-size-gb inference-dynamic-batching-max-requests-override "
        "inference-dynamic-batching-max-tokens-override inference-max-requests inference-max-seq-length "
        "max-tokens-to-oom",
        "is for text generation",
        NOTHING,
        _PROGRAM,
        no_field="Only text generation reads it (tools/run_text_generation_server.py, inference.py), no training.",
        source="megatron/core/inference/contexts/static_context.py:33 @core_v0.16.1; "
        "megatron/training/arguments.py:1147 @core_v0.16.1; megatron/inference/text_generation/generation.py:50 "
        "@core_v0.12.1",
    ),
    row(
        "flash-decode",
        "generates with flash decoding",
        NOTHING,
        _PROGRAM,
        no_field="Only text generation reads it, one token at a time.",
        source="megatron/core/transformer/attention.py:933 @core_v0.16.1",
    ),
    group_row(("inference",), "changes inference", NOTHING, _PROGRAM),
    group_row(
        ("vision",),
        "is for vision models (pretrain_vision_*.py)",
        NOTHING,
        _PROGRAM,
        no_field="Only vision models read it (pretrain_vision_classify.py, _inpaint.py, _dino.py).",
        source="megatron/legacy/model/vision/dino.py:86 @core_v0.16.1; megatron/legacy/data/vit_dataset.py:85 "
        "@core_v0.16.1; megatron/training/training.py:1696 @core_v0.16.1",
    ),
    row(
        "retriever-seq-length sample-rate",
        "is for retrieval models (pretrain_ict.py)",
        NOTHING,
        _PROGRAM,
        groups=("biencoder",),
        no_field="Only retrieval models read it (pretrain_ict.py, tasks/orqa).",
        source="megatron/legacy/model/biencoder_model.py:90 @core_v0.16.1; megatron/legacy/indexer.py:29 "
        "@core_v0.16.1; megatron/legacy/data/orqa_wiki_dataset.py:139 @core_v0.16.1",
    ),
    row("retro-add-retriever", "adds a retriever to the model", MODEL, _PROGRAM),
    group_row(
        ("retro",),
        "shapes models with retrieval",
        NOTHING,
        _PROGRAM,
        no_field="Only RETRO reads it (pretrain_retro.py).",
        source="megatron/legacy/model/transformer.py:1161 @core_v0.12.1; megatron/training/training.py:781 "
        "@core_v0.12.1",
    ),
    row(
        "perform-rl-step",
        "trains by reinforcement learning",
        MODEL,
        "RL is Megatron-LM's own loop since 0.15",
    ),
    group_row(
        ("rl",),
        "tunes reinforcement learning",
        MODEL,
        "RL is Megatron-LM's own loop since 0.15",
        read=passed("perform-rl-step"),
    ),
    group_row(
        ("In-process restart", "ft_package"),
        "finds and repairs broken or slow processes",
        START,
        _NVIDIA,
        "fault_tolerance.max_restarts=3",
    ),
    group_row(("profiling",), "chooses what is logged", OUTPUT, _LOOP),
    group_row(("distributed",), "tunes how processes talk", SPEED, _DDP),
    group_row(("data and dataloader", "tokenizer"), "changes how data is read", TRAINING, _DATA),
    group_row(
        (
            "learning rate",
            "learning rate and weight decay",
        ),
        "tunes the optimizer",
        TRAINING,
        _LOOP,
    ),
    group_row(("training",), "tunes the training loop", TRAINING, _LOOP),
    group_row(
        (
            "transformer configuration",
            "network size",
            "moe",
            "mla",
        ),
        "changes the layers",
        MODEL,
        _CORE,
    ),
)

# Of Megatron-LM up to 0.16; MindSpeed-LLM takes them.
NATIVE_ONLY: tuple[NativeOnlyArg, ...] = (
    *SINGLE,
    *_BATCH,
    *_OPTIMIZER,
    *LAYERS,
    *_DATA_ROWS,
    *_CHECKPOINT,
    *_OUTPUT_ROWS,
    *_START,
    *_GROUPS,
)


def rows() -> tuple[NativeOnlyArg, ...]:
    """Return the table."""
    return (*NEWEST, *NEWER, *NATIVE_ONLY)
