"""Effects of Megatron-LM arguments without a canonical field on layers, parallelism and precision.

Source: megatron/core/{transformer/transformer_config,model_parallel_config}.py @core_v0.12.1 and core_v0.16.1.
"""

from collections.abc import Callable

from launcher.job import Job
from launcher.mapping.native_only import MEMORY, MODEL, NOTHING, OUTPUT, SPEED, START, TRAINING, NativeOnlyArg, row

_LOOP = "it belongs to Megatron-LM's own training loop"
_CORE = "it is a switch of megatron-core's layers"
_TE = "it is a matter of Transformer Engine, NVIDIA's library of layers"
_NVIDIA = "it is made for NVIDIA's hardware and libraries"
_DDP = "it tunes Megatron-core's distributed data parallelism"
_PROGRAM = "it is for another program of Megatron-LM than pre-training of language models"


def passed(*names: str) -> Callable[[Job], bool]:
    """Return a condition: one of these arguments is passed through with a value that is not false."""

    def given(job: Job) -> bool:
        args = job.backend.passthrough
        return any(args.get(name) for name in names)

    return given


_MODEL = (
    row(
        "spec",
        "builds the layers from a Python function of this stack",
        MODEL,
        "the function is a part of its source",
        "model.path=DIR",
        without="layers are built from the fields of model.*",
        unrelated=True,
    ),
    row(
        "use-mcore-models",
        "chooses the model classes of megatron-core or the older ones",
        NOTHING,
        "only megatron-core's classes are left",
    ),
    row("use-rotary-position-embeddings", "chooses rotary positions by their old name", NOTHING, "a field sets it"),
    row(
        "num-query-groups",
        "sets the heads of keys and values",
        NOTHING,
        "it is read beside --group-query-attention only",
        source="megatron/training/arguments.py:1348 @core_v0.16.1",
    ),
    row(
        "openai-gelu onnx-safe use-te-activation-func",
        "changes the activation function",
        MODEL,
        _CORE,
        "model.hidden_act={value}",
        without="the activation is the one of model.hidden_act",
    ),
    row("use-fused-weighted-squared-relu", "computes squared ReLU in one kernel", SPEED, _CORE),
    row(
        "no-rope-freq use-rope-scaling mscale mscale-all-dim rotary-scaling-factor",
        "changes the rotary positions",
        MODEL,
        _CORE,
        "model.rope_scaling.type=yarn",
        without="positions are those of model.rope_* and model.path",
    ),
    row(
        "relative-attention-num-buckets relative-attention-max-distance no-position-embedding",
        "changes learned and relative positions",
        MODEL,
        _CORE,
        read=lambda job: job.model.position_embedding == "learned_absolute",
    ),
    row(
        "window-attn-skip-freq linear-attention-freq experimental-attention-variant",
        "changes the attention",
        MODEL,
        _CORE,
        "model.sliding_window={value}",
    ),
    row("log-max-attention-logit", "logs the largest attention logit", OUTPUT, _CORE),
    row(
        "disable-mamba-mem-eff-path",
        "leaves a kernel of Mamba layers out that saves memory",
        MEMORY,
        "Mamba layers are Megatron-core's and MindSpeed-LLM's",
        without="the other stack trains transformers only",
    ),
    row(
        "encoder-num-layers",
        "sets the number of layers by its old name",
        MODEL,
        _CORE,
        "model.num_hidden_layers={value}",
    ),
    row(
        "encoder-seq-length",
        "shapes encoder-decoder models",
        NOTHING,
        _PROGRAM,
    ),
    row(
        "embedding-init-method-std",
        "chooses another initialisation",
        TRAINING,
        _CORE,
        "model.initializer_range=0.02",
        without="weights start from a normal distribution; nothing changes with pretrained weights",
        read=lambda job: job.model.pretrained is not True,
    ),
    row("mlp-chunks-for-prefill batch-invariant-mode", "changes inference", NOTHING, _CORE),
    row(
        "use-kitchen-attention kitchen-attention-backend",
        "chooses the library of layers",
        SPEED,
        _TE,
        "kernels.transformer_impl={value}",
    ),
    row(
        "kitchen-config-file kitchen-recipe-number",
        "chooses how NVIDIA's package kitchen quantises matrix products",
        TRAINING,
        _TE,
    ),
    row("deterministic-mode", "asks for the same numbers in every run", TRAINING, _CORE, "kernels.deterministic=true"),
    row("attention-backend", "chooses the attention kernel", SPEED, _TE, "kernels.attention_backend={value}"),
    row(
        "no-bias-gelu-fusion no-bias-swiglu-fusion disable-jit-fuser",
        "switches a fused kernel off",
        SPEED,
        _CORE,
    ),
)

_MOE = (
    row(
        "moe-extended-tp moe-layer-recompute moe-router-padding-for-fp8 "
        "moe-router-padding-for-quantization moe-deepep-num-sms moe-hybridep-num-sms moe-enable-deepep "
        "moe-pad-experts-for-cuda-graph-inference",
        "changes how experts are computed, not what",
        SPEED,
        _CORE,
    ),
    row(
        "moe-upcycling-granularity",
        "makes experts of a dense checkpoint at the start",
        MODEL,
        _CORE,
        "checkpoint.load=DIR",
        without="convert the checkpoint before",
    ),
    row("moe-latent-size", "changes what experts compute", MODEL, _CORE),
    row("moe-enable-routing-replay", "repeats the routing of a rollout", NOTHING, _CORE),
    row(
        "moe-router-load-balancing-type",
        "chooses how experts are kept busy",
        MODEL,
        _CORE,
        "moe.load_balancing_type=aux_loss",
    ),
)

_PARALLEL = (
    row(
        "encoder-tensor-model-parallel-size encoder-pipeline-model-parallel-size pipeline-model-parallel-split-rank "
        "standalone-embedding-stage",
        "splits encoder-decoder models",
        START,
        _PROGRAM,
        neutral=(0,),
    ),
    *(
        row(
            old,
            "is refused by its own parser (a name of old versions)",
            NOTHING,
            "it is a name of old versions",
            no_field=f"The parser refuses it and names its successor, {new} ({path}).",
            refused_for=new,
            source=f"megatron/training/arguments.py:{line} @core_v0.16.1",
        )
        for old, new, path, line in (
            ("batch-size", "micro-batch-size", "batch.micro_batch_size", 414),
            ("model-parallel-size", "tensor-model-parallel-size", "parallel.tp", 420),
            ("checkpoint-activations", "recompute-granularity", "recompute.granularity", 424),
        )
    ),
    row(
        "num-virtual-stages-per-pipeline-rank",
        "cuts stages into virtual ones",
        SPEED,
        _CORE,
        "parallel.vpp={value}",
    ),
    row(
        "decoder-first-pipeline-num-layers",
        "gives the first stage its own number of layers",
        SPEED,
        _CORE,
        "parallel.first_stage_layers={value}",
    ),
    row(
        "decoder-last-pipeline-num-layers",
        "gives the last stage its own number of layers",
        SPEED,
        _CORE,
        "parallel.last_stage_layers={value}",
    ),
    row(
        "cp-comm-type hierarchical-context-parallel-sizes hybrid-context-parallel max-seqlen-per-dp-cp-rank",
        "chooses how context parallelism talks",
        SPEED,
        _TE,
        "parallel.cp_algorithm=ulysses",
    ),
    row(
        "outer-dp-sharding-strategy enable-full-sharding-in-hsdp",
        "shards the optimizer in several groups",
        MEMORY,
        _DDP,
        "parallel.distributed_optimizer=true",
        neutral=(1, "no_shard"),
    ),
    row(
        "torch-fsdp2-* fsdp-* data-parallel-sharding-strategy",
        "shards weights, gradients and optimizer (FSDP)",
        MEMORY,
        _DDP,
        "parallel.zero_stage=3",
        "parallel.distributed_optimizer=true",
        neutral=("no_shard",),
    ),
    row(
        "ddp-reduce-scatter-with-fp32-accumulation",
        "changes where gradients are averaged, in rounding only",
        SPEED,
        _DDP,
    ),
    row(
        "delay-param-gather no-delay-grad-reduce delay-wgrad-compute ep-overlap-early-attn-memory-release "
        "mtp-standalone high-priority-stream-groups create-all-gather-group",
        "tunes when collectives run",
        SPEED,
        _DDP,
    ),
    row(
        "no-scatter-gather-tensors-in-pipeline",
        "is read by no line of this stack",
        NOTHING,
        "it is a name of old versions",
        no_field="It is a switch without a line that reads it: stages scatter and gather tensors no more.",
        source="megatron/training/arguments.py:2272 @core_v0.16.1",
    ),
    row(
        "recompute-mla-up-proj", "computes MLA's up-projection again", MEMORY, _CORE, "recompute.modules=[mla_up_proj]"
    ),
    row("min-offloaded-tensor-size", "offloads tensors above this size only", MEMORY, _CORE),
    row(
        "cuda-graph-* enable-cuda-graph external-cuda-graph",
        "captures layers as CUDA graphs",
        SPEED,
        _NVIDIA,
        neutral=("none", 3, "full"),
    ),
    row(
        "symmetric-ar-type use-nccl-ub use-sharp sharp-enabled-group disable-symmetric-registration nccl-*",
        "tunes NCCL",
        SPEED,
        _NVIDIA,
    ),
)

_PRECISION = (
    row(
        "fp4-quantizer-factory",
        "trains in fp4",
        TRAINING,
        _TE,
        "precision.fp8_format=hybrid",
        read=passed("fp4-format"),
    ),
    row(
        "fp8-* te-precision-config-file",
        "tunes fp8",
        TRAINING,
        _TE,
        without="the other backend's fp8 settings apply",
        read=lambda job: job.precision.fp8_format is not None,
    ),
    row("reuse-grad-buf-for-mxfp8-param-ag", "saves memory of fp8 weights", MEMORY, _TE),
)

LAYERS: tuple[NativeOnlyArg, ...] = (*_MODEL, *_MOE, *_PARALLEL, *_PRECISION)
