"""Checks that Megatron-LM has since 0.17: patterns of hybrid models, inference layers, CUDA graphs, generation."""

from backends.megatron_lm.rules.recomputed import by_either
from backends.megatron_lm.rules.versions import PLAIN, SINCE_17, UNTIL_17, configured, validated
from launcher.rules.registry import RuleContext
from launcher.rules.table import checked, declare, needs, never

_V = "0.17.1"
_PATTERN = "hybrid-layer-pattern"
_INFERENCE = "transformer-impl=inference_optimized"
_RL = "perform-rl-step"
_FULL = "cuda-graph-scope~full_iteration"
_DELAYED = "delay-wgrad-compute & overlap-grad-reduce"


def _main(context: RuleContext) -> str:
    """Return the pattern of the model itself, without those of multi-token prediction."""
    return str(context.flag(_PATTERN) or "").partition("/")[0]


def _segments(context: RuleContext) -> str:
    count, stages = _main(context).count("|") + 1, context.number("pipeline-model-parallel-size", 1)
    if count == 1 or count % stages == 0:
        return ""
    return f"the pattern has {count} parts, which are not a multiple of {stages} pipeline stages"


def _uneven(context: RuleContext) -> str:
    given = [name for name in _UNEVEN if context.flag(name) is not None]
    return f"the pattern's | already ends the stages: without --{given[0]}" if given and "|" in _main(context) else ""


_UNEVEN = ("decoder-first-pipeline-num-layers", "decoder-last-pipeline-num-layers")
_STAGES = ("num-layers-per-virtual-pipeline-stage", "num-virtual-stages-per-pipeline-rank",
           "pipeline-model-parallel-layout")  # fmt: skip

# fmt: off
declare((
    never("MLM-PATTERN-TWICE", f"{_PATTERN}? & hybrid-override-pattern?",
          "The older name of the layer pattern and its new one exclude each other.", validated(_V, 595)),
    *(never(f"MLM-PATTERN-{name}", f"{_PATTERN}? & {flag}?",
            "The | of the layer pattern ends the parts of a pipeline.", validated(_V, line))
      for name, flag, line in zip(("CHUNK", "CHUNKS", "LAYOUT"), _STAGES, (661, 667, 672), strict=True)),
    never("MLM-PATTERN-EMBEDDING", f"{_PATTERN}? & account-for-embedding-in-pipeline-split",
          "The | of the layer pattern ends the parts of a pipeline.", validated(_V, 676)),
    never("MLM-PATTERN-LOSS", f"{_PATTERN}? & account-for-loss-in-pipeline-split",
          "The | of the layer pattern ends the parts of a pipeline.", validated(_V, 681)),
    checked("MLM-PATTERN-PARTS", _segments, "The parts of a layer pattern fill the pipeline's stages evenly.",
            validated(_V, 696), when=f"{_PATTERN}?", reads="pipeline-model-parallel-size",
            flags=(_PATTERN, "pipeline-model-parallel-size")),
    checked("MLM-PATTERN-UNEVEN", _uneven, "The | of the layer pattern gives the layers of each stage.",
            validated(_V, "652, 657"), when=f"{_PATTERN}?", reads=" ".join(_UNEVEN), flags=(_PATTERN, *_UNEVEN)),
    needs("MLM-PARAM-GATHER-OPTIMIZER-17", "overlap-param-gather",
          "use-distributed-optimizer or use-megatron-fsdp or optimizer=dist_muon",
          "Only the distributed optimizer, Megatron FSDP, or dist_muon gathers weights.", validated(_V, 857)),
    never("MLM-MUON-GRAD-17", "optimizer=muon & overlap-grad-reduce",
          "Muon overlaps gradient reduction as dist_muon only.", validated(_V, 1487), until=UNTIL_17),
    never("MLM-MUON-GATHER-17", "optimizer=muon & overlap-param-gather",
          "Muon overlaps the gathering of weights as dist_muon only.", validated(_V, 1488), until=UNTIL_17),
    needs("MLM-MLA-DOWN-FUSION", "mla-down-proj-fusion", "multi-latent-attention",
          "Only latent attention has down-projections.", validated(_V, 1596)),
    needs("MLM-CUDA-GRAPH-NAN-17", f"enable-cuda-graph & {_FULL}", "no-check-for-nan-in-loss-and-grad",
          "A graph of the whole iteration cannot check the loss for NaN.", validated(_V, 1007), until=UNTIL_17),
    needs("MLM-CUDA-GRAPH-NAN-IMPL-17", f"cuda-graph-impl=local & {_FULL}", "no-check-for-nan-in-loss-and-grad",
          "A graph of the whole iteration cannot check the loss for NaN.", validated(_V, 1007), until=UNTIL_17),
    needs("MLM-CUDA-GRAPH-EXPERTS-17",
          "enable-cuda-graph & expert-model-parallel-size>1 & transformer-impl!=inference_optimized",
          "moe-pad-experts-for-cuda-graph-inference",
          "Local CUDA graphs need experts' inputs of one size.", validated(_V, 1459), until=UNTIL_17),
    needs("MLM-CUDA-GRAPH-EXPERTS-IMPL-17",
          "cuda-graph-impl=local & expert-model-parallel-size>1 & transformer-impl!=inference_optimized",
          "moe-pad-experts-for-cuda-graph-inference",
          "Local CUDA graphs need experts' inputs of one size.", validated(_V, 1459), until=UNTIL_17),
    needs("MLM-CUDA-GRAPH-COUNT", "cuda-graph-impl=local",
          "inference-dynamic-batching-num-cuda-graphs>0 or inference-dynamic-batching-num-cuda-graphs=-1",
          "Local CUDA graphs for generation have a number, or -1.", validated(_V, 1019)),
    needs("MLM-CUDA-GRAPH-INFERENCE-FP8",
          "cuda-graph-impl=local & cuda-graph-scope~full_iteration_inference & fp8-format",
          f"{_INFERENCE} & fp8-recipe=mxfp8",
          "Graphs of whole generation steps in FP8 need layers for inference and MXFP8.",
          validated(_V, "1012, 1015"), until=UNTIL_17),
    never("MLM-DELAY-WGRAD-GRAPH", f"{_DELAYED} & cuda-graph-scope~attn & no-gradient-accumulation-fusion",
          "Delayed weight gradients in a CUDA graph need fused gradient accumulation.", validated(_V, 1531),
          until=UNTIL_17),
    never("MLM-DELAY-WGRAD-GRAPH-BIAS", f"{_DELAYED} & cuda-graph-scope~attn & add-qkv-bias",
          "Delayed weight gradients in a CUDA graph need attention without a bias.", validated(_V, 1537),
          until=UNTIL_17),
    needs("MLM-FUSED-RESIDUAL", "fused-residual-rmsnorm", "normalization=RMSNorm",
          "Only RMSNorm is fused with the residual.", configured(_V, 1699)),
    *by_either(never("MLM-EP-OVERLAP-RC-MOE",
          "overlap-moe-expert-parallel-comm & recompute-granularity=selective & recompute-modules~moe",
          "A recomputed MoE layer would repeat the overlapped communication.", configured(_V, 2122))),
    never("MLM-INFERENCE-FUSED-MOE", "inference-fuse-tp-communication & num-experts>0",
          "MoE models do not fuse this communication.", configured(_V, 2240)),
    needs("MLM-INFERENCE-NVLS", "inference-disable-triton-nvls-kernels", _INFERENCE,
          "Only layers for inference have these kernels.", configured(_V, 2245)),
    needs("MLM-INFERENCE-ETP", f"{_INFERENCE} & num-experts>0 & tensor-model-parallel-size>1",
          "expert-tensor-parallel-size=1",
          "MoE layers for inference do not split experts by tensor parallelism.", configured(_V, 1184)),
    never("MLM-INFERENCE-CAPACITY", f"{_INFERENCE} & num-experts>0 & moe-expert-capacity-factor?",
          "MoE layers for inference drop no tokens.", configured(_V, 1188)),
    needs("MLM-INFERENCE-ROUTER", f"{_INFERENCE} & num-experts>0", "moe-router-dtype=fp32",
          "MoE layers for inference route in fp32.", configured(_V, 1195)),
    never("MLM-INFERENCE-GRAPH", f"{_INFERENCE} & num-experts>0 & swiglu & cuda-graph-impl=local",
          "MoE layers for inference have no CUDA graphs of gated activations.", configured(_V, 1201), until=UNTIL_17),
    never("MLM-RL-PERSIST", f"{_RL} & rl-persist-cuda-graphs & cuda-graph-impl=none",
          "Only CUDA graphs that are built can be kept.", validated(_V, 362)),
    never("MLM-RL-TRAINING-GRAPHS", f"{_RL} & rl-training-cuda-graphs & cuda-graph-impl=none",
          "Only CUDA graphs that are built can be used in training.", validated(_V, 366)),
    needs("MLM-RL-CACHE-OFFLOAD", f"{_RL} & rl-kv-cache-management-mode=offload",
          "rl-persist-cuda-graphs & inference-dynamic-batching-unified-memory-level<=0",
          "The KV cache is moved to the CPU beside kept graphs and without unified memory.", validated(_V, "382, 387")),
    never("MLM-RL-OFFLOADED-OPTIMIZER",
          f"{_RL} & skip-train & no-load-optim & rl-offload-optimizer-during-inference",
          "Without training there is no optimizer to offload.", validated(_V, 1478)),
), backends=PLAIN, since=SINCE_17)
# fmt: on
