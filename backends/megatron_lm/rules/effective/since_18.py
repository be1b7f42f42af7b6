"""What validation sets since Megatron-LM 0.18: CUDA graphs, evaluation batches, Megatron FSDP, Muon."""

from collections.abc import Mapping

from backends.megatron_lm.rules.effective.tables import sets
from backends.megatron_lm.rules.versions import PLAIN, SINCE_18, configured, validated
from launcher.job import Value
from launcher.rules.registry import Range, RuleContext
from launcher.rules.table import declare

_V = "0.18.2"
_EIGHTEEN: Mapping[str, Range] = {"megatron_lm": (SINCE_18, None)}
_IMPL, _PARTS, _SCOPE = "cuda-graph-impl", "cuda-graph-modules", "inference-cuda-graph-scope"
_WHOLE, _GENERATION = "full_iteration", "full_iteration_inference"
_ROUTING = ("moe_router", "moe_preprocess")
_SHARDED = "use-distributed-optimizer"


def _without_older_names(context: RuleContext) -> Value:
    return tuple(part for part in context.items(_PARTS) if part not in (_WHOLE, _GENERATION, "full"))


def _with_both_parts(context: RuleContext) -> Value:
    parts = context.items(_PARTS)
    return (*parts, *(part for part in _ROUTING if part not in parts))


_VALIDATED = (
    sets(
        "MLM-SET-GRAPH-WHOLE",
        f"{_PARTS}~{_WHOLE}",
        {_IMPL: _WHOLE, _PARTS: _without_older_names},
        "The older part means the implementation that captures the whole iteration.",
        "megatron-core 0.18.2 transformer/cuda_graph_config.py:11; Megatron-LM core_v0.18.2 arguments.py:302",
        _EIGHTEEN,
    ),
    sets(
        "MLM-SET-GRAPH-BLOCK",
        f"{_PARTS}~{_GENERATION} & {_IMPL}=local",
        {_SCOPE: "block", _PARTS: _without_older_names},
        "The older part means that generation is captured by blocks.",
        "megatron-core 0.18.2 transformer/cuda_graph_config.py:12; Megatron-LM core_v0.18.2 arguments.py:302",
        _EIGHTEEN,
    ),
    sets(
        "MLM-SET-GRAPH-PARTS",
        f"{_PARTS}~full|{_GENERATION}",
        {_PARTS: _without_older_names},
        "No parts mean the whole layer, and generation has an argument of its own.",
        validated(_V, 304),
        _EIGHTEEN,
    ),
    sets(
        "MLM-SET-GRAPH-LAYER",
        f"!{_SCOPE}? & {_IMPL}=local",
        {_SCOPE: "layer"},
        "CUDA graphs of Megatron-core capture generation layer by layer by default.",
        "megatron-core 0.18.2 transformer/cuda_graph_config.py:76",
        _EIGHTEEN,
    ),
    sets(
        "MLM-SET-GRAPH-NO-GENERATION",
        f"!{_SCOPE}? & {_IMPL}!=local",
        {_SCOPE: "none"},
        "Only CUDA graphs of Megatron-core capture generation.",
        "megatron-core 0.18.2 transformer/cuda_graph_config.py:77",
        _EIGHTEEN,
    ),
    sets(
        "MLM-SET-EVAL-BATCH",
        "!eval-global-batch-size? & global-batch-size?",
        {"eval-global-batch-size": "{global-batch-size}"},
        "Evaluation has the global batch size of training by default.",
        validated(_V, 707),
        _EIGHTEEN,
    ),
    sets(
        "MLM-SET-EVAL-MICRO",
        "!eval-micro-batch-size? & micro-batch-size?",
        {"eval-micro-batch-size": "{micro-batch-size}"},
        "Evaluation has the micro-batch size of training by default.",
        validated(_V, 709),
        _EIGHTEEN,
    ),
    sets(
        "MLM-SET-MFSDP-SHARDED",
        "use-megatron-fsdp",
        {_SHARDED: True, "reuse-grad-buf-for-mxfp8-param-ag": False},
        "Megatron FSDP includes the distributed optimizer, and has buffers of its own.",
        validated(_V, "1119, 1121"),
        _EIGHTEEN,
    ),
    sets(
        "MLM-SET-MFSDP-REGISTERED",
        "use-megatron-fsdp & use-nccl-ub",
        {"fsdp-manual-registration": True},
        "Megatron FSDP registers its buffers with NCCL where it uses NCCL's.",
        validated(_V, 1148),
        _EIGHTEEN,
    ),
    sets(
        "MLM-SET-MUON",
        "optimizer=dist_muon",
        {"optimizer": "muon"},
        "The older name means Muon whose states are sharded layer by layer.",
        validated(_V, 1565),
        _EIGHTEEN,
    ),
    sets(
        "MLM-SET-EMERGING-SHARDED",
        f"optimizer!=adam|sgd & {_SHARDED}",
        {_SHARDED: False},
        "States of optimizers beside Adam and SGD are sharded layer by layer.",
        validated(_V, 1570),
        _EIGHTEEN,
    ),
    sets(
        "MLM-SET-GRAPH-WHOLE-RNG",
        f"{_IMPL}={_WHOLE} & transformer-impl=transformer_engine & !te-rng-tracker",
        {"te-rng-tracker": True},
        "CUDA graphs need Transformer Engine's RNG tracker.",
        validated(_V, 1742),
        _EIGHTEEN,
    ),
    sets(
        "MLM-SET-CONVERT",
        "ckpt-convert-format?",
        {"exit-on-missing-checkpoint": True},
        "A conversion needs a checkpoint.",
        validated(_V, 405),
        _EIGHTEEN,
    ),
)
_CONFIGURED = (
    sets(
        "MLM-SET-GRAPH-ROUTING-18",
        f"{_IMPL}=local & {_PARTS}~moe_router|moe_preprocess",
        {_PARTS: _with_both_parts},
        "CUDA graphs of Megatron-core capture moe_router and moe_preprocess together.",
        configured(_V, "2256, 2258"),
        _EIGHTEEN,
        _PARTS,
    ),
)
declare(_VALIDATED, backends=PLAIN)
declare(_CONFIGURED, backends=PLAIN, phase="config")
