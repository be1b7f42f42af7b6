"""What validation sets of the layout: parallel sizes, batch, pipeline schedule, recomputation, CUDA graphs."""

from dataclasses import replace

from backends.megatron_lm.mapping.chunks import chunks_of
from backends.megatron_lm.rules.effective.tables import (
    ALONE,
    SINCE_FIFTEEN,
    SINCE_FOURTEEN,
    SINCE_THIRTEEN,
    SIXTEEN,
    UNTIL_SEVENTEEN,
    data_ranks,
    sets,
)
from backends.megatron_lm.rules.versions import (
    BACKENDS,
    BEFORE_14,
    EVERY,
    SINCE_12,
    SINCE_12_TO_13,
    SINCE_13,
    UNTIL_12,
    UNTIL_13,
    arguments,
    config,
    validated,
)
from launcher.job import Value
from launcher.rules.registry import RuleContext
from launcher.rules.sanity_checks import layout_chunks
from launcher.rules.table import declare, term

_STAGES, _SPLIT = "pipeline-model-parallel-size", "pipeline-model-parallel-split-rank"
_ENCODER_STAGES, _ENCODER_RANKS = "encoder-pipeline-model-parallel-size", "encoder-tensor-model-parallel-size"
_LAYERS_OF_CHUNK, _CHUNKS = "num-layers-per-virtual-pipeline-stage", "num-virtual-stages-per-pipeline-rank"
_MODULES, _SCOPE, _STREAMS = "recompute-modules", "cuda-graph-scope", "high-priority-stream-groups"
_ROUTING = ("moe_router", "moe_preprocess")


@term(
    "megatron_lm",
    "chunks",
    "pipeline-model-parallel-layout",
    _STAGES,
    _CHUNKS,
    _LAYERS_OF_CHUNK,
    "num-layers",
    "account-for-embedding-in-pipeline-split",
    "account-for-loss-in-pipeline-split",
)
def chunks(context: RuleContext) -> int:
    """Return the chunks of a pipeline stage: virtual_pipeline_model_parallel_size (arguments.py:515-556 @0.16.1)."""
    layout = context.flag("pipeline-model-parallel-layout")
    if layout is not None:
        return len(layout_chunks(str(layout))) // max(context.number(_STAGES, 1), 1)
    return chunks_of(context.values) or context.number(_CHUNKS, 1)


def _one_round(context: RuleContext) -> str:
    """Return the message for a global batch size that is not set; empty if it is set or the ranks are unknown."""
    micro, ranks = context.number("micro-batch-size"), data_ranks(context)
    if not (context.existing and micro and ranks):
        return ""
    return f"global_batch_size not set → {micro * ranks} (micro_batch_size {micro} × dp {ranks})"


def _with_experts(context: RuleContext) -> Value:
    modules = context.items(_MODULES)
    return modules if "moe" in modules else (*modules, "moe")


def _with_both_parts(context: RuleContext) -> Value:
    scopes = context.items(_SCOPE)
    return (*scopes, *(part for part in _ROUTING if part not in scopes))


_VALIDATED = (
    sets(
        "MLM-SET-ENCODER-TP",
        f"{_ENCODER_STAGES}>0 & {_ENCODER_RANKS}=0",
        {_ENCODER_RANKS: "{tensor-model-parallel-size}"},
        "The tensor-parallel size of a separate encoder is the decoder's by default.",
        arguments(308),
        BEFORE_14,
    ),
    sets(
        "MLM-SET-EXPERT-TP",
        "!expert-tensor-parallel-size?",
        {"expert-tensor-parallel-size": "{tensor-model-parallel-size}"},
        "The expert tensor-parallel size is the tensor-parallel size by default.",
        arguments(359, 411),
    ),
    sets(
        "MLM-SET-RECOMPUTE",
        "recompute-activations",
        {"recompute-granularity": "selective"},
        "The older switch means selective recomputation.",
        arguments(380, 431),
        unread=("recompute-activations",),
    ),
    sets(
        "MLM-SET-GRAPH-LOCAL",
        "enable-cuda-graph",
        {"cuda-graph-impl": "local"},
        "The older switch means CUDA graphs of Megatron-core.",
        arguments("", 446),
        SINCE_FIFTEEN,
        unread=("enable-cuda-graph",),
    ),
    sets(
        "MLM-SET-GRAPH-TE",
        "external-cuda-graph",
        {"cuda-graph-impl": "transformer_engine"},
        "The older switch means CUDA graphs of Transformer Engine.",
        arguments("", 453),
        SINCE_FIFTEEN,
        unread=("external-cuda-graph",),
    ),
    replace(
        sets(
            "MLM-GLOBAL-BATCH-DEFAULT",
            "!global-batch-size?",
            {"global-batch-size": lambda context: context.number("micro-batch-size") * data_ranks(context)},
            "A command line without a global batch size runs one micro-batch on every data-parallel rank.",
            arguments(422, 498),
            EVERY,
            f"job.imported.backend job.cluster.* micro-batch-size tensor-model-parallel-size {_STAGES} "
            f"context-parallel-size {_ENCODER_STAGES} {_ENCODER_RANKS}",
        ),
        check=_one_round,
        reports_unwritten=True,
        fields=("batch.global_batch_size",),
    ),
    # After the global batch size, whose ranks are counted with the stages as they are written (arguments.py:325).
    sets(
        "MLM-SET-SPLIT-RANK",
        f"{_SPLIT}?",
        {
            _ENCODER_STAGES: "{" + _SPLIT + "}",
            _STAGES: lambda context: context.number(_STAGES) - context.number(_SPLIT),
        },
        "The split rank divides the pipeline stages between encoder and decoder.",
        arguments("347, 348"),
        SINCE_12_TO_13,
    ),
    sets(
        "MLM-SET-P2P",
        f"!{_LAYERS_OF_CHUNK}? & !{_CHUNKS}?",
        {"no-overlap-p2p-communication": True, "no-align-param-gather": True},
        "Pipeline communication overlaps, and weight gathering is aligned, only in the interleaved schedule.",
        arguments("470, 471"),
        UNTIL_12,
    ),
    sets(
        "MLM-SET-P2P-13",
        f"!{_LAYERS_OF_CHUNK}? & !{_CHUNKS}? & @chunks<=1",
        {"no-overlap-p2p-communication": True, "no-align-param-gather": True},
        "Pipeline communication overlaps, and weight gathering is aligned, only in the interleaved schedule.",
        validated("0.13.1", "576, 577"),
        {"megatron_lm": (SINCE_13, UNTIL_13)},
    ),
    sets(
        "MLM-SET-P2P-16",
        "@chunks<=1",
        {"no-overlap-p2p-communication": True, "no-align-param-gather": True},
        "Pipeline communication overlaps, and weight gathering is aligned, only in the interleaved schedule.",
        arguments("", "585, 586"),
        SINCE_FOURTEEN,
    ),
    sets(
        "MLM-SET-SHARDING-PARAMS",
        "data-parallel-sharding-strategy=optim_grads_params",
        {"overlap-param-gather": True, "overlap-grad-reduce": True},
        "Sharding weights overlaps weight gathering and gradient reduction with computation.",
        arguments("496, 497"),
        BEFORE_14,
    ),
    sets(
        "MLM-SET-SHARDING-GRADS",
        "data-parallel-sharding-strategy=optim_grads",
        {"overlap-grad-reduce": True},
        "Sharding gradients overlaps gradient reduction with computation.",
        arguments(500),
        BEFORE_14,
    ),
    sets(
        "MLM-SET-FSDP2-FP8",
        "use-torch-fsdp2 & fp8-param-gather",
        {"fp8-param-gather": False},
        "PyTorch's FSDP does not gather FP8 weights with Transformer Engine 2.",
        arguments("", 626),
        SINCE_FOURTEEN,
    ),
    sets(
        "MLM-SET-FSDP-BUFFER",
        "fsdp-manual-registration & use-megatron-fsdp & reuse-grad-buf-for-mxfp8-param-ag",
        {"reuse-grad-buf-for-mxfp8-param-ag": False},
        "Megatron-FSDP does not reuse manually registered buffers.",
        arguments("", 698),
        UNTIL_SEVENTEEN,
    ),
    sets(
        "MLM-SET-SP",
        "tensor-model-parallel-size=1 & sequence-parallel",
        {"sequence-parallel": False},
        "Sequence parallelism splits over tensor-parallel ranks, and there is only one.",
        arguments(761, 913),
    ),
    # On Blackwell devices Megatron-FSDP adds groups, too (arguments.py:958 @core_v0.16.1).
    sets(
        "MLM-SET-STREAMS",
        "use-torch-fsdp2",
        {_STREAMS: lambda context: tuple(dict.fromkeys((*context.items(_STREAMS), "dp_cp")))},
        "PyTorch's FSDP communicates on a stream of high priority.",
        arguments("", 960),
        SINCE_THIRTEEN,
        _STREAMS,
    ),
    replace(
        sets(
            "MLM-SET-GRAPH-RNG",
            "cuda-graph-impl!=none & !te-rng-tracker",
            {"te-rng-tracker": True},
            "CUDA graphs need Transformer Engine's RNG tracker.",
            arguments("", 1245),
            SIXTEEN,
            "transformer-impl cuda-graph-impl",
        ),
        check=lambda context: "transformer_engine" in (context["transformer-impl"], context["cuda-graph-impl"]),
    ),
    sets(
        "MLM-SET-GRAPH-SCOPE",
        f"{_SCOPE}~full",
        {_SCOPE: ()},
        "An empty scope means that the whole layer is captured.",
        arguments("", 1260),
        UNTIL_SEVENTEEN,
    ),
)
_CONFIGURED = (
    sets(
        "MLM-SET-CHUNK-GROUP",
        "!microbatch-group-size-per-virtual-pipeline-stage?",
        {"microbatch-group-size-per-virtual-pipeline-stage": "{" + _STAGES + "}"},
        "By default a chunk processes micro-batches in groups of pipeline-parallel size.",
        "megatron-core 0.12.1 model_parallel_config.py:390; megatron-core 0.16.1 model_parallel_config.py:448",
    ),
    sets(
        "MLM-SET-MODULES",
        f"!{_MODULES}?",
        {_MODULES: ("core_attn",)},
        "By default selective recomputation recomputes core attention.",
        config(724, 1194),
        ALONE,  # MS-SET-MODULES
    ),
    sets(
        "MLM-SET-MOE-RECOMPUTE",
        "moe-layer-recompute",
        {"recompute-granularity": "selective", _MODULES: _with_experts},
        "The older switch means selective recomputation of MoE layers.",
        config("763, 765", "1264, 1266"),
        SINCE_12,
        _MODULES,
        unread=("moe-layer-recompute",),
    ),
    sets(
        "MLM-SET-GRAPH-ROUTING",
        f"cuda-graph-impl=local & {_SCOPE}~moe_router|moe_preprocess",
        {_SCOPE: _with_both_parts},
        "CUDA graphs of Megatron-core capture moe_router and moe_preprocess together.",
        config("", "1733, 1735"),
        UNTIL_SEVENTEEN,
        _SCOPE,
    ),
)
declare(_VALIDATED, backends=BACKENDS)
declare(_CONFIGURED, backends=BACKENDS, phase="config")
