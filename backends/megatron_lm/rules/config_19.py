"""Checks that Megatron-LM has since 0.19: weight shards, sparse attention, experts, offloading, distillation."""

from collections.abc import Iterator

from backends.megatron_lm.rules.config_18 import FINE, offloads_with_graphs
from backends.megatron_lm.rules.plain import GRAPHS, graphs_of
from backends.megatron_lm.rules.recomputed import by_either
from backends.megatron_lm.rules.versions import PLAIN, SINCE_19, configured, validated
from launcher.job.model import selects_keys
from launcher.pipeline_schedule.layout import CannotSplit, parse_layout
from launcher.rules.registry import RuleContext, Violation, rule
from launcher.rules.table import checked, declare, needs, never

_V = "0.19.0"
_DSA = "experimental-attention-variant=dsa"
_PP, _LAYOUT = "pipeline-model-parallel-size", "pipeline-model-parallel-layout"
_ENDS = ("decoder-first-pipeline-num-layers", "decoder-last-pipeline-num-layers")
_ACCOUNTED = ("account-for-embedding-in-pipeline-split", "account-for-loss-in-pipeline-split")
_TP, _SHARDS = "tensor-model-parallel-size", "tensor-parallel-num-weight-shards"
_ETP, _EXPERT_SHARDS = "expert-tensor-parallel-size", "expert-tensor-parallel-num-weight-shards"
_WEIGHT, _BIAS = "moe-single-grouped-weight", "moe-single-grouped-bias"
_RANK_CAPACITY = "moe-expert-rank-capacity-factor?"
_INSIDE = {"expert_fc1", "moe_act", "fused_group_mlp"}
_LARGE = "offload-modules~fused_group_mlp"
_FUSER = "use-transformer-engine-op-fuser"
_EXACT = "batch-invariant-mode"


def _sharded(context: RuleContext) -> bool:
    """Return whether weights have more shards than tensor-parallel ranks."""
    tp = context.number(_TP, 1)
    pairs = ((_SHARDS, tp), (_EXPERT_SHARDS, context.number(_ETP, tp)))
    return any(context.number(shards, size) > size for shards, size in pairs)


def _gathers(context: RuleContext) -> str:
    kinds = context.items("cp-comm-type")
    return "" if kinds and all(str(kind).replace("_", "") == "allgather" for kind in kinds) else (
        "sparse attention needs --cp-comm-type allgather under context parallelism"
    )  # fmt: skip


def _stage_starts(context: RuleContext) -> list[int]:
    """Return the layers, counted from 1, with which pipeline stages and their chunks begin."""
    layers, stages = context.number("num-layers"), context.number(_PP, 1)
    layout = context.flag(_LAYOUT)
    if isinstance(layout, str):
        try:
            counts = [chunk.count("t") for chunk in parse_layout(layout)]
        except CannotSplit:
            return []
    else:
        counts = _counts(context, layers, stages)
    return [1 + sum(counts[:at]) for at in range(1, len(counts)) if counts[at]]


def _counts(context: RuleContext, layers: int, stages: int) -> list[int]:
    """Return the layers of each chunk; none where they cannot be split so (transformer_block.py:76 @core_v0.16.1)."""
    ends = [context.number(flag) for flag in _ENDS]
    counted = [bool(context.flag(flag)) for flag in _ACCOUNTED]
    middle, rest = stages - sum(map(bool, ends)), layers + sum(counted) - sum(ends)
    each = rest // middle if middle > 0 else 0
    if middle < 0 or rest != each * middle:
        return []
    first, last = ends
    ranks = [*([first] if first else []), *[each] * middle, *([last] if last else [])]
    size = context.number("num-layers-per-virtual-pipeline-stage")
    virtual = each // size if size else context.number("num-virtual-stages-per-pipeline-rank", 1)
    counts = [rank // max(1, virtual) for _ in range(max(1, virtual)) for rank in ranks]
    counts[0] -= counted[0]
    counts[-1] -= counted[1]
    return counts


def _reuses_across_stages(context: RuleContext) -> str:
    every = context.number("dsa-indexer-topk-freq", 1)
    if every < 2 or context.number(_PP, 1) < 2:
        return ""
    offset = max(1, context.number("dsa-indexer-skip-topk-offset"))
    shared = [start for start in _stage_starts(context) if not selects_keys(start - 1, every, offset)]
    if not shared:
        return ""
    return f"layer {shared[0]} begins a pipeline stage and reuses the keys that an earlier stage selected"


def _offloads(context: RuleContext) -> str:
    impl, parts = graphs_of(context)
    if impl != "local":
        return offloads_with_graphs(context)
    others = set(map(str, context.items("offload-modules"))) - _INSIDE
    if others:
        return f"CUDA graphs of Megatron-core do not support offloading {', '.join(sorted(others))}"
    if not parts:
        return "activations are not offloaded with whole layers in CUDA graphs"
    if "moe" in parts:
        return "activations are not offloaded with MoE layers in CUDA graphs"
    return offloads_with_graphs(context, local=True)


def _multiprocessors(context: RuleContext) -> str:
    counts = {context.flag(f"moe-{name}-num-sms") for name in ("deepep", "hybridep")} - {None}
    return "--moe-deepep-num-sms and --moe-hybridep-num-sms differ" if len(counts) > 1 else ""


# fmt: off
declare((
    checked("MLM-SHARDS-FP4", _sharded, "Shards of weights are gathered in FP4 where layers compute in FP4.",
            validated(_V, 1476), when="fp4-format", then="fp4-param-gather",
            reads=f"{_TP} {_ETP} {_SHARDS} {_EXPERT_SHARDS}", flags=(_SHARDS, "fp4-format", "fp4-param-gather"),
            message=f"--{_SHARDS} above tp with --fp4-format needs --fp4-param-gather"),
    checked("MLM-SHARDS-AVERAGE", _sharded, "Gradients of sharded weights are summed.", validated(_V, 1513),
            when="ddp-average-in-collective", reads=f"{_TP} {_ETP} {_SHARDS} {_EXPERT_SHARDS}",
            flags=(_SHARDS, "ddp-average-in-collective"),
            message=f"--{_SHARDS} above tp cannot be combined with --ddp-average-in-collective"),
    checked("MLM-SHARDS-FORMAT", _sharded, "Sharded weights are saved in the formats torch and torch_dist only.",
            validated(_V, 1518), when="ckpt-format!=torch|torch_dist",
            reads=f"{_TP} {_ETP} {_SHARDS} {_EXPERT_SHARDS}", flags=(_SHARDS, "ckpt-format"),
            message=f"--{_SHARDS} above tp needs --ckpt-format torch or torch_dist"),
    checked("MLM-SHARDS-RESHARDABLE", _sharded,
            "Checkpoints of sharded weights are not fully reshardable in little memory.", validated(_V, 1522),
            when="dist-ckpt-optim-fully-reshardable & distrib-optim-fully-reshardable-mem-efficient",
            reads=f"{_TP} {_ETP} {_SHARDS} {_EXPERT_SHARDS}",
            flags=(_SHARDS, "distrib-optim-fully-reshardable-mem-efficient"),
            message=f"--{_SHARDS} above tp cannot be combined with --distrib-optim-fully-reshardable-mem-efficient"),
    checked("MLM-SHARDS-MXFP8", _sharded, "Shards of weights are gathered in MXFP8 through the gradients' buffer.",
            validated(_V, "1536, 1543"), when="fp8-recipe=mxfp8",
            then="fp8-param-gather & reuse-grad-buf-for-mxfp8-param-ag",
            reads=f"{_TP} {_ETP} {_SHARDS} {_EXPERT_SHARDS}", flags=(_SHARDS, "fp8-recipe", "fp8-param-gather"),
            message=f"--{_SHARDS} above tp with MXFP8 needs --fp8-param-gather and "
            "--reuse-grad-buf-for-mxfp8-param-ag"),
    never("MLM-MFSDP-SINGLE-WEIGHT", f"use-megatron-fsdp & {_WEIGHT}",
          "Megatron FSDP does not shard the weights of experts as one parameter.", validated(_V, 1115)),
    never("MLM-MFSDP-SINGLE-BIAS", f"use-megatron-fsdp & {_BIAS}",
          "Megatron FSDP does not shard the biases of experts as one parameter.", validated(_V, 1115)),
    needs("MLM-LOGITS-TOP", "logits-save-dir?", "logits-save-top-k?",
          "As many logits of a token are saved.", validated(_V, 1752)),
    needs("MLM-LOGITS-ASYNC", "logits-save-dir?", "async-save & use-persistent-ckpt-worker",
          "Logits are saved with asynchronous checkpoints.", validated(_V, 1753)),
    never("MLM-CKPT-ITERATION", "override-ckpt-iteration? & finetune",
          "Fine-tuning begins at iteration 0.", validated(_V, 1771)),
    never("MLM-DETERMINISTIC-TP-OVERLAP", "deterministic-mode & tp-comm-overlap",
          "Overlapped tensor-parallel communication is not deterministic.", validated(_V, 1656)),
    needs("MLM-DSA-BIAS", _DSA, "disable-bias-linear", "Sparse attention has no biases.", configured(_V, 1385)),
    never("MLM-DSA-FREQUENCY", f"{_DSA} & dsa-indexer-topk-freq<1",
          "An indexer serves at least one layer.", configured(_V, 1390)),
    never("MLM-DSA-OFFSET", f"{_DSA} & dsa-indexer-skip-topk-offset<0",
          "The layers without a shared indexer are counted from the first one.", configured(_V, 1394)),
    checked("MLM-DSA-SHARED-STAGE", _reuses_across_stages,
            "A pipeline stage begins with a layer that selects keys itself.",
            "megatron-core 0.19.0 models/gpt/experimental_attention_variant_module_specs.py:366", when=_DSA,
            reads=f"dsa-indexer-topk-freq dsa-indexer-skip-topk-offset num-layers {_PP} {_LAYOUT} "
            f"{' '.join((*_ENDS, *_ACCOUNTED))} num-layers-per-virtual-pipeline-stage "
            "num-virtual-stages-per-pipeline-rank",
            flags=("dsa-indexer-topk-freq", "dsa-indexer-skip-topk-offset", _PP)),
    checked("MLM-DSA-CP-19", _gathers, "Sparse attention gathers the sequence under context parallelism.",
            configured(_V, 2847), when=f"{_DSA} & context-parallel-size>1", reads="cp-comm-type",
            flags=("cp-comm-type", "context-parallel-size")),
    never("MLM-SINGLE-WEIGHT-FP8", f"{_WEIGHT} & fp8-format & fp8-recipe!=mxfp8",
          "The weights of experts are one parameter in MXFP8, NVFP4, bf16 and fp16.", configured(_V, 1572)),
    never("MLM-SINGLE-WEIGHT-FP4", f"{_WEIGHT} & fp4-format & fp4-recipe!=nvfp4",
          "The weights of experts are one parameter in MXFP8, NVFP4, bf16 and fp16.", configured(_V, 1573)),
    needs("MLM-SINGLE-WEIGHT-FUSER", _WEIGHT, _FUSER,
          "The weights of experts are one parameter in Transformer Engine's fused operations only.",
          configured(_V, 1579)),
    needs("MLM-NCCL-FLEX", "moe-flex-dispatcher-backend=ncclep", "moe-token-dispatcher-type=flex",
          "NCCL dispatches tokens for the flex dispatcher only.", configured(_V, 1610)),
    checked("MLM-FLEX-MULTIPROCESSORS", _multiprocessors,
            "The two older names of --moe-flex-dispatcher-num-sms have one value.", configured(_V, 1630),
            when="!moe-flex-dispatcher-num-sms?", reads="moe-deepep-num-sms moe-hybridep-num-sms",
            flags=("moe-deepep-num-sms", "moe-hybridep-num-sms")),
    needs("MLM-RANK-CAPACITY-19", _RANK_CAPACITY, "moe-flex-dispatcher-backend=hybridep|ncclep",
          "A capacity for each rank is that of HybridEP and NCCL.", configured(_V, 1693)),
    needs("MLM-RANK-CAPACITY-FUSER", f"{_RANK_CAPACITY} & moe-flex-dispatcher-backend=hybridep", _FUSER,
          "A capacity for each rank is that of Transformer Engine's fused operations with HybridEP.",
          configured(_V, 1699)),
    *by_either(needs("MLM-RC-GDN", "recompute-granularity=selective & recompute-modules~gdn_norm_out",
          "experimental-attention-variant=gated_delta_net",
          "Only linear attention has this norm.", configured(_V, 1796))),
    *by_either(never("MLM-OFFLOAD-RC-MOE",
          f"{FINE} & recompute-granularity=selective & recompute-modules~moe & "
          "offload-modules~moe_act|expert_fc1|fused_group_mlp",
          "A recomputed MoE layer keeps no activations to offload.", configured(_V, 1875))),
    never("MLM-OFFLOAD-SIZE", f"{FINE} & min-offloaded-tensor-size<0", "A size is not negative.",
          configured(_V, 1886)),
    never("MLM-OFFLOAD-BELOW", f"{FINE} & activation-offload-fraction<0",
          "A fraction is between 0 and 1.", configured(_V, 1889)),
    never("MLM-OFFLOAD-ABOVE", f"{FINE} & activation-offload-fraction>1",
          "A fraction is between 0 and 1.", configured(_V, 1889)),
    never("MLM-OFFLOAD-DELTA", f"{FINE} & delta-offload-bytes-across-pp-ranks<0",
          "A size is not negative.", configured(_V, 1892)),
    needs("MLM-OFFLOAD-FUSED", f"{FINE} & {_LARGE}", _FUSER,
          "The MLP of experts is offloaded as a whole in Transformer Engine's fused operations only.",
          configured(_V, 1896)),
    never("MLM-OFFLOAD-TWICE", f"{FINE} & {_LARGE} & offload-modules~expert_fc1|moe_act",
          "The MLP of experts is offloaded as a whole or in parts.", configured(_V, 1899)),
    never("MLM-STASH-OFFLOAD-FUSED", f"moe-paged-stash & {_LARGE}",
          "Activations of experts are kept in pages or offloaded, not both.", configured(_V, 1912)),
    checked("MLM-FINE-OFFLOAD-GRAPH-19", _offloads, "CUDA graphs restrict which activations are offloaded.",
            configured(_V, "2596-2640"), when=FINE,
            reads=f"{GRAPHS} offload-modules cuda-graph-warmup-steps fine-grained-offloading-max-inflight-offloads",
            flags=(FINE, "cuda-graph-impl", "cuda-graph-modules")),
    needs("MLM-BATCH-INVARIANT-FLASH", _EXACT, "flash-attention-version=3|4",
          "Training and generation run the same kernel.", configured(_V, 2883)),
    never("MLM-BATCH-INVARIANT-CP", f"{_EXACT} & context-parallel-size>1",
          "Context parallelism runs another kernel.", configured(_V, 2890)),
    never("MLM-BATCH-INVARIANT-DROPOUT", f"{_EXACT} & attention-dropout!=0.0|0",
          "Dropout depends on the batch.", configured(_V, 2893)),
), backends=PLAIN, since=SINCE_19)
# fmt: on


@rule(
    "MLM-SHARDS",
    source="megatron-core 0.19.0 model_parallel_config.py:33, 38",
    reads=f"{_TP} {_ETP} {_SHARDS} {_EXPERT_SHARDS}",
    backends=PLAIN,
    since=SINCE_19,
)
def shards_are_multiples(context: RuleContext) -> Iterator[Violation]:
    """The shards of a weight are a multiple of its tensor-parallel size."""
    tp = context.number(_TP, 1)
    for shards, flag, size in ((_SHARDS, _TP, tp), (_EXPERT_SHARDS, _ETP, context.number(_ETP, tp))):
        count = context.number(shards, size)
        if size and (count < size or count % size):
            yield Violation(message=f"--{shards} {count} is not a multiple of --{flag} {size}", flags=(shards, flag))
