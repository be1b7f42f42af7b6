"""Effects of MindSpeed-LLM arguments without a canonical field, for porting a script to another stack.

Sources: mindspeed_llm/features_manager and mindspeed/features_manager at 26.1.0, and in the parser of 2.1.0.
"""

from backends.megatron_lm.native_only.layers import passed
from backends.megatron_lm.native_only.table import NATIVE_ONLY as MEGATRON
from backends.mindspeed.native_only.layers import LAYERS
from backends.mindspeed.native_only.model import MODEL_ROWS
from backends.mindspeed.native_only.single import SINGLE
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

_ASCEND = "it is an operator or a library of Ascend's CANN"
_MINDSPEED = "it is a feature of MindSpeed"
_TOOL = "it belongs to another program of MindSpeed-LLM than training"
_DATA = "it belongs to MindSpeed-LLM's own data sets"
_CONVERT = "it belongs to MindSpeed-LLM's own conversion at start and end"
_REMOVED_RL = "MindSpeed-LLM's own reinforcement learning was removed after 2.1.0"

_OPTIMIZER = (
    row(
        "optimizer-selection",
        "chooses the kernel of AdamW",
        SPEED,
        _ASCEND,
        neutral=("fused_adamw", "fused_torch_adamw"),
    ),
    row(
        "ema-decay",
        "keeps a moving average of the weights",
        OUTPUT,
        _MINDSPEED,
        without="no averaged weights are written",
        read=passed("optimizer-selection"),
    ),
    row(
        "qat-scheme qat-quant-block-size indexer-qk-quant-scheme",
        "rounds weights in training as they will be served",
        MODEL,
        _MINDSPEED,
        without="weights are trained unrounded",
    ),
    row("lu-lora-*", "trains adapters of the last layers with rates of their own", MODEL, _MINDSPEED, "lora.rank=8"),
    row("lora-fusion", "computes an adapter in one kernel with its layer", SPEED, _MINDSPEED),
    row(
        "lora-ckpt-filter save-lora-to-hf qlora-save-dequantize",
        "chooses how adapters are written",
        OUTPUT,
        _CONVERT,
        "lora.merge=true",
    ),
    row(
        "lora-modules-to-save",
        "trains these modules beside the adapters",
        MODEL,
        _MINDSPEED,
        "lora.target_modules=[{value}]",
        neutral=(None, (), []),
    ),
    row("lora-register-forward-hook", "lets gradients reach the adapters under recomputation", NOTHING, _MINDSPEED),
)

_PARALLEL = (
    row(
        "use-ascend-mc2 use-mc2 use-ascend-coc coc-*",
        "overlaps tensor parallelism with products",
        SPEED,
        _ASCEND,
        "overlap.tp_comm=true",
    ),
    row(
        "enable-overlap-ag-with-matmul enable-overlap-matmul-with-rs enable-backward-overlap-ag-with-matmul",
        "overlaps 2-D tensor parallelism with products",
        SPEED,
        _MINDSPEED,
        "overlap.tp_comm=true",
    ),
    row(
        "use-nd-matmul nd1-dim1-size nd2-dim1-size",
        "splits products in three dimensions",
        SPEED,
        _MINDSPEED,
        "parallel.tp=8",
    ),
    row(
        "unaligned-linear",
        "splits widths that tensor parallelism does not divide",
        SPEED,
        _MINDSPEED,
        without="widths must be multiples of parallel.tp",
    ),
    row(
        "pipeline-num-transformer-layers num-layer-list",
        "gives each stage its own number of layers",
        SPEED,
        _MINDSPEED,
        "parallel.layout=TEXT",
        without="set the first and last stage with parallel.first_stage_layers and parallel.last_stage_layers",
    ),
    row(
        "optimize-send-recv-comm async-log-allreduce layerwise-disaggregated-training",
        "tunes how stages talk",
        SPEED,
        _MINDSPEED,
    ),
    row(
        "fsdp2-config-path",
        "shards by FSDP2",
        MEMORY,
        _MINDSPEED,
        "parallel.zero_stage=3",
        "parallel.distributed_optimizer=true",
    ),
)

_DATA_ROWS = (
    row(
        "no-shared-storage",
        "lets each node build its own index of the data",
        START,
        "other stacks build it once for each node or ask for shared folders",
        without="every node must see data.cache_path, or build it itself",
    ),
    row(
        "handler-name",
        "chooses how raw samples become tokens",
        MODEL,
        _DATA,
        "data.format=messages",
        without="the loss may cover other tokens",
        read=lambda job: job.data.format in ("alpaca", "messages", "hub"),
    ),
    row(
        "prompt-type-path",
        "reads chat templates from a file",
        MODEL,
        _DATA,
        "data.template={value}",
        without="the template of the tokenizer applies",
    ),
    row(
        "reasoning-effort drop-thinking",
        "chooses how thoughts in samples are treated",
        TRAINING,
        _DATA,
        without="the template of the tokenizer applies",
    ),
    row(
        "padded-samples full-shuffle-instruction-dataset cut-max-seqlen no-cut-token dataset-additional-keys",
        "chooses which samples are drawn and how they are cut",
        TRAINING,
        _DATA,
        without="other samples, or other ends of them, are seen",
    ),
    row("pad-to-multiple-of", "pads samples to a multiple", SPEED, _DATA),
    row(
        "is-instruction-dataset pack neat-pack",
        "chooses how instruction samples are batched",
        MODEL,
        _DATA,
        "batch.packing=true",
        read=lambda job: job.task.type != "pretrain",
    ),
    row(
        "variable-seq-lengths",
        "lets batches have lengths of their own",
        SPEED,
        _DATA,
        "batch.variable_seq_lengths=true",
    ),
    row(
        "tokenizer-not-use-fast tokenizer-padding-side tokenizer-kwargs",
        "chooses how the tokenizer is read",
        TRAINING,
        _DATA,
        without="the tokenizer is read as its files specify",
        neutral=("right",),
    ),
    row(
        "reward-model",
        "names the model that judges answers",
        MODEL,
        _REMOVED_RL,
        no_field="It belongs to PPO, which a job cannot choose, and which was removed after 2.1.0.",
        source="mindspeed_llm/tasks/posttrain/trl_ppo/TrlPPOEngine.py:35 @2.1.0",
        unrelated=True,
        read=lambda job: job.task.type not in ("pretrain", "sft", "dpo", "simpo"),
    ),
    row("streaming", "reads data sets of a hub piece by piece while they are prepared", NOTHING, _TOOL, unrelated=True),
)

_START = (
    row(
        "ai-framework",
        "runs on MindSpore under PyTorch's interface",
        START,
        "it chooses Ascend's framework below",
        without="the other stack runs on its own framework",
        neutral=("pytorch",),
    ),
    row("optimization-level", "chooses how much MindSpeed replaces in Megatron", SPEED, _MINDSPEED),
    row("jit-compile", "compiles operators when they are first used", SPEED, _ASCEND),
    row(
        "hccl-*",
        "tunes HCCL, Ascend's collectives",
        SPEED,
        _ASCEND,
        without="set variables of NCCL in backend.env where they are needed",
    ),
    row(
        "enable-high-availability enable-hbmfault-repair enable-worker-reboot enable-elastic-training "
        "enable-optimizer-state-local-copy distributed-optimizer-no-replica",
        "repairs a run whose node fails",
        START,
        "it is MindIO's and MindCluster's",
        "fault_tolerance.max_restarts=3",
    ),
    row("npu-datadump", "dumps tensors for msprobe", OUTPUT, _ASCEND),
    row("profile-*", "tunes the profiler of Ascend", OUTPUT, _ASCEND, "profiler.enabled=true"),
    row("skip-bias-add use-fused-mlp", "adds biases in a later kernel", SPEED, _MINDSPEED),
    row("return-document-ids", "hands document numbers to the model", NOTHING, _DATA),
    row(
        "log-batch-size-to-tensorboard no-log-learnig-rate-to-tensorboard",
        "chooses what is logged",
        OUTPUT,
        _MINDSPEED,
        "logging.tensorboard_dir=DIR",
    ),
)

_CHECKPOINT = (
    row(
        "enable-hf2mg-convert model-type-hf",
        "starts from Hugging Face weights",
        MODEL,
        _CONVERT,
        "model.path=DIR",
        "checkpoint.load=DIR",
        without="convert the weights before: launch convert hf-to-mcore",
    ),
    row(
        "hf-save-dir mg-save-dir mg-cache-dir hf-cfg-dir only-convert-last-checkpoint save-layer-by-layer",
        "writes Hugging Face weights, too",
        OUTPUT,
        _CONVERT,
        "checkpoint.save_safetensors=true",
        without="convert them after training: launch convert mcore-to-hf",
    ),
    row(
        "load-checkpoint-loosely",
        "starts though weights are missing in the checkpoint",
        MODEL,
        _CONVERT,
        "checkpoint.strictness=log_all",
        without="missing weights stop the start",
    ),
    row(  # passed through if --model-type-hf is not a supported family; otherwise it maps to a field
        "load",
        "starts from the Hugging Face weights in this directory",
        MODEL,
        _CONVERT,
        "model.path={value}",
        without="convert the weights before (launch convert hf-to-mcore) and name them in checkpoint.load",
        read=lambda job: job.checkpoint.load is None,
        unrelated=True,
    ),
    row("refer-model-iter", "chooses the reference model's step", TRAINING, _CONVERT, "task.reference_model=DIR"),
)

_OTHER_PROGRAMS = (
    row(
        "cache-dir dataset-dir script-data-dir map-keys merge-group-keys max-samples mix-strategy "
        "interleave-probs overwrite-cache output-prefix json-keys append-eod keep-newlines "
        "split-sentences dataset-impl datasets hf-datasets-params n-subs pad-vocab-size-to "
        "placeholder-token reward-tokens",
        "prepares raw data",
        TRAINING,
        "it is for preprocess_data.py and for data prepared at the start",
        without="prepare the data before, as the other stack reads it",
        read=lambda job: job.data.format not in ("megatron", "mock", None),
    ),
    group_row(("dataset",), "prepares raw data", TRAINING, _DATA),
    group_row(("inference", "evaluation", "text generation"), "is for inference and evaluation", NOTHING, _TOOL),
    group_row(
        ("reinforce learning in dpo", "run two megatrons at once"),
        "tunes reinforcement learning",
        MODEL,
        _REMOVED_RL,
        read=lambda job: job.task.type not in ("pretrain", "sft", "dpo", "simpo"),
    ),
    group_row(("dpo",), "tunes preference training", TRAINING, _MINDSPEED),
    group_row(("finetune", "data", "tokenizer_type"), "changes how data is read", TRAINING, _DATA),
    group_row(("learning rate",), "tunes the optimizer", TRAINING, _MINDSPEED),
)

_IGNORED = (
    row(
        "train-sync-interval log-straggler disable-straggler-on-startup straggler-ctrlr-port straggler-minmax-count "
        "run-workload-inspector-server enable-ft-package calc-ft-timeouts non-persistent-save-interval "
        "check-weight-hash-across-dp-replicas-interval",
        "is read by Megatron's training loop, which MindSpeed-LLM's own replaces",
        NOTHING,
        "nothing of MindSpeed-LLM reads it",
        no_field="MindSpeed-LLM's own training loop takes the place of Megatron's, and reads it nowhere.",
        source="mindspeed_llm/training/training.py:587 @26.1.0; megatron/training/training.py:1678-1760 @core_v0.12.1",
    ),
    row(
        "data-args-path per-split-data-args-path s3-cache-path",
        "is read by Megatron's pretrain_gpt.py, which MindSpeed-LLM's own replaces",
        NOTHING,
        "nothing of MindSpeed-LLM reads it",
        no_field="pretrain_gpt.py of MindSpeed-LLM builds its data sets of the paths on the command line, and reads it "
        "nowhere.",
        source="pretrain_gpt.py:252-260 @26.1.0; pretrain_gpt.py:209-217 @2.1.0",
    ),
)

NATIVE_ONLY: tuple[NativeOnlyArg, ...] = (
    *SINGLE,
    *_IGNORED,
    *LAYERS,
    *_OPTIMIZER,
    *_PARALLEL,
    *_DATA_ROWS,
    *_START,
    *_CHECKPOINT,
    *MODEL_ROWS,
    *_OTHER_PROGRAMS,
    *MEGATRON,
)


def rows() -> tuple[NativeOnlyArg, ...]:
    """Return the table."""
    return NATIVE_ONLY
