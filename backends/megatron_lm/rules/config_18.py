"""Checks that Megatron-LM has since 0.18: CUDA graphs by modules, Megatron FSDP, experts, evaluation batches."""

from collections.abc import Iterator

from backends.megatron_lm.rules.plain import GRAPHS, all_experts, graphs_of
from backends.megatron_lm.rules.versions import PLAIN, SINCE_18, UNTIL_18, configured, validated
from launcher.rules.registry import RuleContext, Violation, rule
from launcher.rules.table import checked, declare, needs, never

_V = "0.18.2"
_IMPL, _PARTS, _SCOPE = "cuda-graph-impl", "cuda-graph-modules", "inference-cuda-graph-scope"
_WHOLE, _GENERATION = "full_iteration", "full_iteration_inference"
_DELAYED = "delay-wgrad-compute & overlap-grad-reduce & cuda-graph-modules~attn"
FINE = "fine-grained-activation-offloading"
_GENERATES = "transformer-impl=inference_optimized & num-experts>0"
_EMERGING = "optimizer!=adam|sgd"
_WEIGHT, _BIAS = "moe-single-grouped-weight", "moe-single-grouped-bias"
_RANK_CAPACITY = "moe-expert-rank-capacity-factor?"
_STASH = "moe-paged-stash"
_DISPATCH = "overlap-dispatch-backward-with-experts-wgrad"


def _is_whole(context: RuleContext) -> bool:
    return graphs_of(context)[0] == _WHOLE


def _recomputes(context: RuleContext) -> str:
    impl, _ = graphs_of(context)
    wanted = "full recomputation supports CUDA graphs of whole iterations only: --cuda-graph-impl full_iteration"
    return "" if impl in ("none", _WHOLE) else wanted


def _generates_in_fp8(context: RuleContext) -> bool:
    """Return whether generation is captured as a whole; the older name of that needs the implementation local."""
    older = _GENERATION in context.items(_PARTS) and graphs_of(context)[0] == "local"
    return older or context.flag(_SCOPE) == "block"


def offloads_with_graphs(context: RuleContext, *, local: bool = False) -> str:
    """Return why activations cannot be offloaded with CUDA graphs.

    Args:
        local: graphs of Megatron-core can.
    """
    impl, parts = graphs_of(context)
    if impl == "none":
        return ""
    if impl == "local" and not local:
        return "activations are offloaded with CUDA graphs of Transformer Engine or of whole iterations only"
    if "moe" in parts:
        return "activations are not offloaded with MoE layers in CUDA graphs"
    if context.number("cuda-graph-warmup-steps", 3) < 1:
        return "activations are offloaded with CUDA graphs after at least one warm-up step"
    if impl == _WHOLE and context.number("fine-grained-offloading-max-inflight-offloads", -1) < 0:
        return "graphs of whole iterations need --fine-grained-offloading-max-inflight-offloads"
    return ""


def _evaluates(context: RuleContext) -> str:
    micro = context.number("eval-micro-batch-size", context.number("micro-batch-size"))
    batch = context.number("eval-global-batch-size", context.number("global-batch-size"))
    if context.given("eval-micro-batch-size") and micro == 0:
        return "--eval-micro-batch-size is at least 1"
    at_once = micro * (context.job.parallel.dp or 0)
    given = context.given("eval-micro-batch-size") or context.given("eval-global-batch-size")
    if not given or not at_once or batch % at_once == 0:
        return ""
    return f"evaluation batch size {batch} is not a multiple of its micro-batch size × dp = {at_once}"


# fmt: off
declare((
    checked("MLM-CUDA-GRAPH-NAN-18", _is_whole, "A graph of the whole iteration cannot check the loss for NaN.",
            validated(_V, 1186), when="!no-check-for-nan-in-loss-and-grad", reads=GRAPHS,
            flags=("no-check-for-nan-in-loss-and-grad", _IMPL, _PARTS),
            message="a CUDA graph of the whole iteration needs --no-check-for-nan-in-loss-and-grad"),
    checked("MLM-CUDA-GRAPH-FULL-18", _recomputes,
            "Full recomputation supports CUDA graphs of whole iterations only.", configured(_V, 2300),
            when="recompute-granularity=full", reads=GRAPHS, flags=("recompute-granularity", _IMPL, _PARTS)),
    checked("MLM-CUDA-GRAPH-INFERENCE-FP8-18", _generates_in_fp8,
            "Graphs of whole generation steps in FP8 need layers for inference and MXFP8.", validated(_V, "1192, 1195"),
            when="fp8-format", then="transformer-impl=inference_optimized & fp8-recipe=mxfp8",
            reads=f"{GRAPHS} {_SCOPE}", flags=(_SCOPE, _PARTS, "fp8-format", "transformer-impl", "fp8-recipe"),
            message="CUDA graphs of whole generation steps in FP8 need --transformer-impl inference_optimized and "
            "--fp8-recipe mxfp8"),
    never("MLM-DELAY-WGRAD-GRAPH-18", f"{_DELAYED} & no-gradient-accumulation-fusion",
          "Delayed weight gradients in a CUDA graph need fused gradient accumulation.", validated(_V, 1706)),
    never("MLM-DELAY-WGRAD-GRAPH-BIAS-18", f"{_DELAYED} & add-qkv-bias",
          "Delayed weight gradients in a CUDA graph need attention without a bias.", validated(_V, 1713)),
    checked("MLM-FINE-OFFLOAD-GRAPH", offloads_with_graphs, "CUDA graphs restrict which activations are offloaded.",
            configured(_V, "2351-2372"), until=UNTIL_18, when=FINE,
            reads=f"{GRAPHS} cuda-graph-warmup-steps fine-grained-offloading-max-inflight-offloads",
            flags=(FINE, _IMPL, _PARTS)),
    needs("MLM-EMERGING-FORMAT", _EMERGING, "ckpt-format=torch|torch_dist",
          "Optimizers beside Adam and SGD support the checkpoint formats torch and torch_dist only.",
          validated(_V, 1574)),
    never("MLM-EMERGING-FSDP2", f"{_EMERGING} & use-torch-fsdp2",
          "Torch FSDP2 shards the states of Adam and SGD only.", validated(_V, 1572)),
    never("MLM-EMERGING-FSDP", f"{_EMERGING} & use-megatron-fsdp",
          "Megatron FSDP shards the states of Adam and SGD only.", validated(_V, 1123)),
    never("MLM-MFSDP-META",
          "use-megatron-fsdp & init-model-with-meta-device & data-parallel-sharding-strategy=no_shard",
          "Weights that are not sharded are not made on the meta device.", validated(_V, 1151)),
    never("MLM-CE-TE", "cross-entropy-loss-fusion & cross-entropy-fusion-impl=te",
          "Transformer Engine's fused cross entropy is unstable.", validated(_V, 1529)),
    never("MLM-RAMPUP-UNREAD", "rampup-batch-size?",
          "Batch size ramp-up is set by --step-batch-size-schedule; the older argument is ignored.",
          "megatron-core 0.18.2 num_microbatches_calculator.py:140", severity="warning",
          message="--rampup-batch-size is ignored: --step-batch-size-schedule changes the batch size"),
    never("MLM-STEP-SCHEDULE", "step-batch-size-schedule? & global-batch-size?",
          "The schedule gives the global batch size.", validated(_V, 696)),
    never("MLM-STEP-DECREASE", "step-batch-size-schedule? & decrease-batch-size-if-needed",
          "The batch sizes of a schedule are not decreased.",
          "megatron-core 0.18.2 num_microbatches_calculator.py:265"),
    checked("MLM-EVAL-BATCH", _evaluates,
            "The global batch size of evaluation is a multiple of its micro-batch size and the replicas.",
            validated(_V, 710),
            reads="eval-global-batch-size eval-micro-batch-size global-batch-size micro-batch-size job.parallel.dp",
            flags=("eval-global-batch-size", "eval-micro-batch-size")),
    needs("MLM-CONVERT-PATHS", "ckpt-convert-format?", "ckpt-convert-save? & load?",
          "A conversion reads one checkpoint and writes another.", validated(_V, "403, 404")),
    never("MLM-SAVE-PARAMS", "save & save-params-interval? & overlap-param-gather",
          "Weights whose gathering overlaps with computation are not written to files.", validated(_V, 1312)),
    needs("MLM-FP8-OUTPUT", "fp8-output-proj", "fp8-format & fp8-recipe=mxfp8",
          "The output layer computes in MXFP8 only.", configured(_V, "1300-1305")),
    never("MLM-INFERENCE-SWIGLU", f"{_GENERATES} & swiglu",
          "MoE layers for inference have no gated activations.", configured(_V, 1347)),
    never("MLM-INFERENCE-GEGLU", f"{_GENERATES} & quick-geglu",
          "MoE layers for inference have no gated activations.", configured(_V, 1347)),
    checked("MLM-DENSE-MOE-WIDTH-18", all_experts,
            "A dense model has no feed-forward width of experts, unless its pattern of MoE layers has dense ones.",
            configured(_V, "1396-1412"), when="moe-ffn-hidden-size? & !num-experts", reads="moe-layer-freq",
            flags=("moe-ffn-hidden-size", "num-experts"),
            message="--moe-ffn-hidden-size {moe-ffn-hidden-size} needs --num-experts"),
    needs("MLM-SHARED-OVERLAP-18", "moe-shared-expert-overlap & moe-shared-expert-intermediate-size?",
          "moe-token-dispatcher-type=alltoall|flex",
          "The shared expert overlaps with the dispatchers alltoall and flex only.", configured(_V, 1467)),
    needs("MLM-EXPERT-BIAS-18", "moe-router-enable-expert-bias", "moe-router-score-function=sigmoid|sqrtsoftplus",
          "The learned bias of experts is defined for scores that are not normalised, and checked for dense models, "
          "too.", configured(_V, 2060)),
    needs("MLM-SINGLE-WEIGHT-GEMM", _WEIGHT, "moe-grouped-gemm",
          "The weights of experts are one parameter in the grouped GEMM only.", configured(_V, 1415)),
    needs("MLM-SINGLE-BIAS-GEMM", _BIAS, "moe-grouped-gemm",
          "The biases of experts are one parameter in the grouped GEMM only.", configured(_V, 1415)),
    needs("MLM-SINGLE-WEIGHT-MXFP8", _WEIGHT, "fp8-format & fp8-recipe=mxfp8 & !fp4-format",
          "The weights of experts are one parameter in MXFP8 only.", configured(_V, 1432), until=UNTIL_18),
    never("MLM-SINGLE-BIAS", f"{_BIAS} & disable-bias-linear",
          "Experts have biases where linear layers have.", configured(_V, 1437)),
    needs("MLM-RANK-CAPACITY", _RANK_CAPACITY, "use-transformer-engine-op-fuser & moe-flex-dispatcher-backend=hybridep",
          "A capacity for each rank is that of HybridEP with Transformer Engine's fused operations.",
          configured(_V, "1516, 1521"), until=UNTIL_18),
    needs("MLM-STASH-CAPACITY", _STASH, _RANK_CAPACITY,
          "Activations of experts are kept in pages where each rank has a capacity.", configured(_V, 1686)),
    never("MLM-STASH-OFFLOAD", f"{_STASH} & offload-modules~expert_fc1|moe_act",
          "Activations of experts are kept in pages or offloaded, not both.", configured(_V, 1691)),
    never("MLM-STASH-CPU", f"{_STASH} & cpu-offloading-num-layers>0",
          "Activations of experts are kept in pages or offloaded, not both.", configured(_V, 1684)),
    never("MLM-DISPATCH-OVERLAP", f"{_DISPATCH} & overlap-moe-expert-parallel-comm",
          "Both overlap the communication of experts: keep one.", configured(_V, 2465)),
    never("MLM-DISPATCH-DELAY", f"{_DISPATCH} & delay-wgrad-compute",
          "Both delay the weight gradients of experts: keep one.", configured(_V, 2472)),
), backends=PLAIN, since=SINCE_18)
# fmt: on


@rule(
    "MLM-CUDA-GRAPH-MODULES",
    source="Megatron-LM core_v0.18.2 arguments.py:632, 645, 756; "
    "megatron-core 0.18.2 transformer/cuda_graph_config.py:47, 104, 113, 117, 123, 127",
    reads=f"{GRAPHS} {_SCOPE}",
    backends=PLAIN,
    since=SINCE_18,
)
def captured_parts_fit_the_implementation(context: RuleContext) -> Iterator[Violation]:
    """Parts of layers are captured by graphs of layers; whole iterations and generation have arguments of their own."""
    impl, parts, scope = graphs_of(context)[0], set(context.items(_PARTS)), context.flag(_SCOPE)
    given = _given_impl(context)
    if "cuda-graph-scope" in context.written and _PARTS in context.written:
        yield Violation(message=f"--cuda-graph-scope is the older name of --{_PARTS}: keep one", flags=(_PARTS,))
    if "full" in parts and len(parts) > 1:
        yield Violation(message=f"--{_PARTS} full means the whole layer, without other parts", flags=(_PARTS,))
        return
    if {_WHOLE, _GENERATION} <= parts:
        message = f"--{_PARTS} has two older names of other arguments: keep {_WHOLE} or {_GENERATION}"
        yield Violation(message=message, flags=(_PARTS,))
        return
    if (_GENERATION in parts and given not in ("none", "local")) or (_WHOLE in parts and given == "transformer_engine"):
        older = _WHOLE if _WHOLE in parts else _GENERATION
        yield Violation(message=f"--{_PARTS} {older} cannot be combined with --{_IMPL} {given}", flags=(_PARTS, _IMPL))
        return
    if impl == _WHOLE and parts - {_WHOLE, "full"}:
        message = f"a graph of the whole iteration has no parts: without --{_PARTS}"
        yield Violation(message=message, flags=(_PARTS, _IMPL))
    captured = _GENERATION in parts and impl == "local"
    allowed = ("block",) if captured else ("layer", "block") if impl == "local" else ("none",)
    if scope is not None and scope not in allowed:
        message = f"--{_SCOPE} {scope}: {_IMPL} {impl} captures generation by {' or '.join(allowed)}"
        yield Violation(message=message, flags=(_SCOPE, _IMPL))


def _given_impl(context: RuleContext) -> str:
    if context.flag("enable-cuda-graph"):
        return "local"
    return "transformer_engine" if context.flag("external-cuda-graph") else str(context.flag(_IMPL, "none"))
