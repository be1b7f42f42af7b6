"""Checks of plain Megatron-LM only: its dialects disable them or are based on an older version."""

import math
from collections.abc import Iterator

from backends.megatron_lm.rules.versions import (
    BACKENDS,
    ONLY_12,
    ONLY_16,
    PLAIN,
    SINCE_12_TO_13,
    SINCE_13,
    SINCE_14,
    SINCE_15,
    SINCE_18,
    UNTIL_13,
    UNTIL_15,
    UNTIL_16,
    UNTIL_17,
    arguments,
    config,
)
from launcher.catalogue.versions import in_range
from launcher.job import Value
from launcher.rules.registry import RuleContext, Violation, rule
from launcher.rules.table import declare, needs, never
from launcher.rules.training import MEAN_OF_RANK, MEAN_OF_RANK_MESSAGE

_TP, _PP, _CP = "tensor-model-parallel-size", "pipeline-model-parallel-size", "context-parallel-size"
_ENCODER_TP, _ENCODER_PP = "encoder-tensor-model-parallel-size", "encoder-pipeline-model-parallel-size"
_SPLIT = "pipeline-model-parallel-split-rank"
_WHOLE = "full_iteration"
_CHUNKED = ("num-virtual-stages-per-pipeline-rank", "num-layers-per-virtual-pipeline-stage")

# fmt: off
declare((
    never("MLM-MTP-RC-LAYERS",
          "mtp-num-layers>0 & recompute-granularity=full & recompute-method=uniform & recompute-num-layers>1",
          "Full uniform recomputation of multi-token-prediction layers is by single layers.",
          "megatron-core 0.16.1 transformer/multi_token_prediction.py:848",
          message="recompute_num_layers {recompute-num-layers}: multi-token-prediction layers need 1 with uniform "
          "recomputation"),
    never("MLM-MTP-CP-MEAN", "mtp-num-layers>0 & context-parallel-size>1 & !calculate-per-token-loss",
          "Each context-parallel rank divides the multi-token-prediction loss by its own number of tokens; the rank "
          "with the end of the sequence has fewer of them, so its tokens weigh more than those of the others.",
          "megatron-core 0.16.1 models/gpt/gpt_model.py:660; measured: docs/rehearsal.md", severity="warning",
          message="cp {context-parallel-size}: each rank divides the multi-token-prediction loss by its own number of "
          "tokens, so training differs a little from cp 1"),
), backends=PLAIN, since=SINCE_14)
declare((
    never("MLM-MTP-CP", "mtp-num-layers>0 & context-parallel-size>1",
          "Multi-token prediction does not work under context parallelism.", arguments(963), until=UNTIL_13),
    never("MLM-MOE-SPEC", "num-experts>0 & spec",
          "An MoE model cannot use a custom layer specification.", arguments(840), until=UNTIL_15),
    needs("MLM-CUSTOM-FSDP", "use-custom-fsdp", "use-distributed-optimizer",
          "Megatron's custom FSDP needs the distributed optimizer.", arguments(555), until=UNTIL_13),
), backends=PLAIN, until=ONLY_12["megatron_lm"][1])
declare((
    needs("MLM-PARAM-GATHER-OPTIMIZER", "overlap-param-gather", "use-distributed-optimizer or use-megatron-fsdp",
          "Only the distributed optimizer, or Megatron FSDP, gathers weights.", arguments("", 598),
          until=UNTIL_16, since=SINCE_14),
    never("MLM-LAYOUT-TWICE", "pipeline-model-parallel-layout & num-layers-per-virtual-pipeline-stage",
          "The layout already gives the number of chunks.", arguments("", 503), since=SINCE_13),
    never("MLM-LAYOUT-TWICE-STAGES", "pipeline-model-parallel-layout & num-virtual-stages-per-pipeline-rank",
          "The layout already gives the number of chunks.", arguments("", 503), since=SINCE_13),
    never("MLM-FP4-FP8", "fp4-format & fp8-format", "Matrix products are in FP4 or in FP8, not "
        "both.", arguments("", 661), since=SINCE_15),
    needs("MLM-FP4-PARAM", "fp4-param-gather", "fp4-format",
          "Weights in FP4 need matrix products in FP4.", arguments("", 665), since=SINCE_15),
    needs("MLM-MFSDP-FORMAT", "use-megatron-fsdp", "ckpt-format=fsdp_dtensor",
          "Megatron FSDP saves in the format fsdp_dtensor only.", arguments("", 690), since=SINCE_14),
    needs("MLM-FSDP-DTENSOR", "ckpt-format=fsdp_dtensor", "use-megatron-fsdp",
          "The fsdp_dtensor format is for Megatron FSDP only.", arguments("", 1050), since=SINCE_14),
    needs("MLM-LOAD-MAIN-PARAMS", "load-main-params-from-ckpt", "no-load-optim",
          "Main parameters are loaded from the checkpoint only if the optimizer is not.", arguments("", 1136),
          since=SINCE_14),
    needs("MLM-DELAY-WGRAD-TE", "delay-wgrad-compute", "transformer-impl=transformer_engine",
          "Only Transformer Engine's layers delay weight gradients.", arguments("", 1210), since=SINCE_13),
    needs("MLM-FINE-OFFLOAD-TE", "fine-grained-activation-offloading", "transformer-impl=transformer_engine",
          "Only Transformer Engine's layers offload single activations.", arguments("", 1223)),
    never("MLM-MLA-GQA", "multi-latent-attention & group-query-attention",
          "Multi-latent attention has no query groups.", arguments("", 1266)),
    never("MLM-MUON-GRAD", "optimizer=muon|dist_muon & overlap-grad-reduce",
          "Muon does not overlap gradient reduction.", arguments("", 1181), until=UNTIL_16),
    never("MLM-MUON-GATHER", "optimizer=muon|dist_muon & overlap-param-gather",
          "Muon does not overlap the gathering of weights.", arguments("", 1182), until=UNTIL_16),
    never("MLM-MUON-DISTRIBUTED", "optimizer=muon|dist_muon & use-distributed-optimizer",
          "Muon does not work with the distributed optimizer.", arguments("", 1184), until=UNTIL_17),
    needs("MLM-MUON-FORMAT", "optimizer=muon|dist_muon", "ckpt-format=torch|torch_dist",
          "Muon supports the checkpoint formats torch and torch_dist only.", arguments("", 1187), until=UNTIL_17),
    needs("MLM-CPU-OFFLOAD-FP8", "optimizer-cpu-offload & fp8-param-gather", "fp8-recipe=delayed",
          "CPU offloading of the optimizer supports FP8 weights under delayed scaling only.", arguments("", 1195),
          since=SINCE_14),
    never("MLM-HYBRID-CP-PP", "hybrid-context-parallel & pipeline-model-parallel-size>1",
          "Context parallelism by sample length does not support pipeline parallelism.", arguments("", 919)),
    needs("MLM-HYBRID-CP-LOSS", "hybrid-context-parallel", "calculate-per-token-loss",
          "Context parallelism by sample length needs the loss per token.", arguments("", 923)),
    never("MLM-CP-MEAN", "context-parallel-size>1 & eod-mask-loss & !calculate-per-token-loss",
          MEAN_OF_RANK,
          "Megatron-LM core_v0.16.1 megatron/core/pipeline_parallel/schedules.py:262; Megatron-LM core_v0.12.1 "
          "pretrain_gpt.py:179; measured: docs/parity.md",
          message=f"cp {{context-parallel-size}} {MEAN_OF_RANK_MESSAGE}",
          severity="warning", since=SINCE_13),
    never("MLM-SAVE-INTERVAL-POSITIVE", "save & save-interval? & save-interval<1",
          "The interval of checkpoints is at least one iteration.", arguments("", 839), since=SINCE_14),
    never("MLM-MOE-LATENT-DENSE", "moe-latent-size & !num-experts",
          "Latent projections need an MoE model.", arguments("", 1271)),
    never("MLM-PAD-AMBIGUOUS", "allow-ambiguous-pad-tokens",
          "A tokenizer whose padding is another special token masks that token in the data.",
          "Megatron-LM core_v0.16.1 megatron/core/datasets/megatron_dataset.py:98", severity="warning",
          message="--allow-ambiguous-pad-tokens: where the tokenizer pads with the end of a document, that is token 0 "
          "and has no loss"),
    never("MLM-PHASE-RAMPUP", "phase-transition-iterations & rampup-batch-size",
          "Phase transitions do not support batch size ramp-up.", arguments("", 492), until=UNTIL_17),
), backends=PLAIN, since=ONLY_16[0])
declare((
    needs("MLM-SHARDING-DISTRIBUTED", "data-parallel-sharding-strategy=optim_grads_params", "use-distributed-optimizer",
          "The strategy overlaps weight gathering, which needs the distributed optimizer.",
          arguments("495, 503")),
    never("MLM-SHARDING-LEGACY", "data-parallel-sharding-strategy=optim_grads_params & use-legacy-models",
          "The strategy overlaps weight gathering, which legacy models do not support.", arguments("495, 507")),
), backends=BACKENDS, versions=SINCE_12_TO_13)
# fmt: on


@rule(
    "MLM-ENCODER",
    source=arguments("303-317, 346-349"),
    reads="num-layers-per-virtual-pipeline-stage num-virtual-stages-per-pipeline-rank tensor-model-parallel-size "
    "encoder-tensor-model-parallel-size encoder-pipeline-model-parallel-size "
    "num-attention-heads context-parallel-size job.cluster.world_size pipeline-model-parallel-size "
    "pipeline-model-parallel-split-rank",
    backends=BACKENDS,
    versions=SINCE_12_TO_13,
)
def encoder_has_room(context: RuleContext) -> Iterator[Violation]:
    """A separate encoder uses additional devices, at most as many per stage as the decoder."""
    tp, encoder_tp, encoder_pp = context.number(_TP, 1), context.number(_ENCODER_TP), context.number(_ENCODER_PP)
    if encoder_tp > 0 and (context.number("num-attention-heads") % encoder_tp or encoder_tp > tp):
        message = f"--{_ENCODER_TP} {encoder_tp} must divide num_attention_heads and be at most tp {tp}"
        yield Violation(message=message, flags=(_ENCODER_TP, _TP))
    if encoder_pp > 0:
        per_stage, cp, world = encoder_tp or tp, context.number(_CP, 1), context.job.cluster.world_size
        total = per_stage * encoder_pp * cp + tp * context.number(_PP, 1) * cp
        if world % total:
            message = f"world size {world} is not divisible by encoder and decoder together, {total} devices"
            yield Violation(message=message, flags=(_ENCODER_PP, _ENCODER_TP, _TP, _PP, _CP))
    if context.given(_SPLIT):
        left = context.number(_PP, 1) - context.number(_SPLIT)
        needed = 2 if any(context.flag(flag) is not None for flag in _CHUNKED) else 1
        if left < needed:
            message = f"--{_SPLIT} {context.flag(_SPLIT)} leaves {left} stages to the decoder, which needs {needed}"
            yield Violation(message=message, flags=(_SPLIT, _PP, *_CHUNKED))


GRAPHS = "enable-cuda-graph external-cuda-graph cuda-graph-impl cuda-graph-scope cuda-graph-modules"
"""Arguments that `graphs_of` reads."""


def graphs_of(context: RuleContext) -> tuple[str, set[str]]:
    """Return the CUDA graph implementation and the captured parts; no parts mean whole layers.

    Since 0.18 a part full_iteration means the implementation of that name, whose only part it is here.
    """
    implied = "local" if context.flag("enable-cuda-graph") else "transformer_engine"
    old = context.flag("enable-cuda-graph") or context.flag("external-cuda-graph")
    impl = implied if old else str(context.flag("cuda-graph-impl", "none"))
    if not context.has_argument("cuda-graph-modules"):
        return impl, set(_words("cuda-graph-scope", context)) - {"full"}
    parts = set(_words("cuda-graph-modules", context)) - {"full", "full_iteration_inference"}
    return (_WHOLE, {_WHOLE}) if impl == _WHOLE or _WHOLE in parts else (impl, parts)


def _words(flag: str, context: RuleContext) -> list[str]:
    value: Value = context.flag(flag) or ()
    return [str(item) for item in (value if isinstance(value, (list, tuple)) else str(value).split(","))]


def all_experts(context: RuleContext) -> bool:
    frequency = str(context.flag("moe-layer-freq", 1))
    return frequency == "1" or (frequency.startswith(("[", "(")) and "0" not in frequency)


@rule(
    "MLM-CUDA-GRAPH-RANDOM",
    source=config("", "1797-1825"),
    reads=f"{GRAPHS} recompute-activations recompute-granularity attention-dropout hidden-dropout "
    "moe-input-jitter-eps recompute-modules",
    backends=PLAIN,
    since=ONLY_16[0],
)
def graphs_recompute_nothing_random(context: RuleContext) -> Iterator[Violation]:
    """Modules that use random numbers cannot be recomputed in a CUDA graph: the numbers would differ."""
    impl, scope = graphs_of(context)
    selective = context.flag("recompute-activations") or context.flag("recompute-granularity") == "selective"
    if impl == "none" or not selective:
        return
    modules = set(_words("recompute-modules", context) or ["core_attn"])
    whole = not scope or "full_iteration" in scope
    random = (
        ("attention-dropout", 0.1, {"core_attn"}, {"attn"}),
        ("hidden-dropout", 0.1, {"mlp"}, {"mlp"}),
        ("hidden-dropout", 0.1, {"moe"}, {"moe"}),
        ("moe-input-jitter-eps", 0, {"moe"}, {"moe"}),
    )
    for flag, default, recomputed, captured in random:
        if context.flag(flag, default) and modules & recomputed and (whole or scope & captured):
            yield Violation(
                message=f"--{flag} {context.flag(flag, default)} in {', '.join(recomputed)}, recomputed inside a "
                f"CUDA graph ({impl}): set --{flag} 0, or do not recompute it",
                flags=(flag, "recompute-modules", "recompute-granularity", "cuda-graph-impl", "enable-cuda-graph"),
            )


@rule(
    "MLM-CUDA-GRAPH-SCOPE",
    source=config("", "1736-1778"),
    reads=f"{GRAPHS} num-experts moe-expert-capacity-factor moe-pad-expert-input-to-capacity moe-layer-freq",
    backends=PLAIN,
    since=ONLY_16[0],
)
def graphs_cover_parts_that_exist(context: RuleContext) -> Iterator[Violation]:
    """Parts captured by CUDA graphs must exist in the layer, be listed once, and have static sizes."""
    impl, scope = graphs_of(context)
    if impl == "none" or not scope:
        return
    if impl == "local" and scope & {"moe_router", "moe_preprocess"}:
        scope |= {"moe_router", "moe_preprocess"}
    experts = context.number("num-experts")
    padded = context.flag("moe-expert-capacity-factor") and context.flag("moe-pad-expert-input-to-capacity")
    faults = {
        "full_iteration needs --cuda-graph-impl local": impl not in ("local", _WHOLE) and _WHOLE in scope,
        "moe already contains moe_router": {"moe", "moe_router"} <= scope,
        "moe_preprocess needs moe_router": "moe_preprocess" in scope and "moe_router" not in scope,
        "a dense model has no experts": experts <= 1 and bool(scope & {"moe", "moe_router"}),
        "every layer is an MoE layer, so that there is no mlp": "mlp" in scope and experts > 1 and all_experts(context),
        "moe needs --moe-expert-capacity-factor and --moe-pad-expert-input-to-capacity": "moe" in scope and not padded,
    }
    for message, is_fault in faults.items():
        if is_fault:
            flags = ("cuda-graph-scope", "cuda-graph-impl", "enable-cuda-graph", "external-cuda-graph")
            yield Violation(message=f"--cuda-graph-scope {' '.join(sorted(scope))}: {message}", flags=flags)


@rule(
    "MLM-CUDA-GRAPH-MOE",
    source=config("", "1786-1795"),
    reads=f"{GRAPHS} recompute-granularity recompute-activations recompute-modules",
    backends=PLAIN,
    since=ONLY_16[0],
)
def graphs_hold_no_recomputed_experts(context: RuleContext) -> Iterator[Violation]:
    """Transformer Engine's CUDA graph of the router is part of the MoE module that would be recomputed."""
    impl, scope = graphs_of(context)
    selective = context.flag("recompute-granularity") == "selective" or context.flag("recompute-activations")
    if (
        impl == "transformer_engine"
        and selective
        and "moe_router" in scope
        and "moe" in _words("recompute-modules", context)
    ):
        yield Violation(
            message="--cuda-graph-scope moe_router cannot be captured inside --recompute-modules moe",
            flags=("cuda-graph-scope", "recompute-modules", "recompute-granularity"),
        )


@rule(
    "MLM-GDN-HEADS",
    source=config("", "965-980"),
    reads="experimental-attention-variant tensor-model-parallel-size context-parallel-size linear-num-key-heads "
    "linear-num-value-heads",
    backends=PLAIN,
    since=ONLY_16[0],
)
def linear_heads_divide(context: RuleContext) -> Iterator[Violation]:
    """Value heads of linear attention are a multiple of its key heads, and both of tp, since 0.18 of tp × cp."""
    if context.flag("experimental-attention-variant") != "gated_delta_net":
        return
    names = ("linear-num-key-heads", "linear-num-value-heads")
    keys, values = (context.number(name) for name in names)
    newer = in_range(context.version or "", SINCE_18, None)
    ranks, size = ((_TP, _CP), "tp × cp") if newer else ((_TP,), "tp")
    product = max(1, math.prod(context.number(name, 1) for name in ranks))
    if keys and values % keys:
        yield Violation(message=f"--{names[1]} {values} is not a multiple of --{names[0]} {keys}", flags=names)
    for name, heads in zip(names, (keys, values), strict=True):
        if heads % product:
            yield Violation(message=f"--{name} {heads} is not a multiple of {size} {product}", flags=(name, *ranks))
