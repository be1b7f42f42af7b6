"""Checks that Megatron-LM has in 0.13, 0.14 or 0.15 only: CUDA graphs, FP8, delayed weight gradients, packed RL."""

from backends.megatron_lm.rules.plain import GRAPHS, graphs_of
from backends.megatron_lm.rules.recomputed import by_either
from backends.megatron_lm.rules.versions import (
    PLAIN,
    SINCE_13,
    SINCE_14,
    SINCE_15,
    UNTIL_13,
    UNTIL_14,
    UNTIL_15,
    configured,
    validated,
)
from launcher.rules.registry import RuleContext
from launcher.rules.table import checked, declare, needs, never

_SWITCH, _DEPTH, _MODULES = "enable-cuda-graph", "recompute-granularity", "recompute-modules"
_OLDER = ("recompute-activations", "moe-layer-recompute")


def _recomputed_in_graph(context: RuleContext) -> str:
    impl, scope = graphs_of(context)
    depth = "selective" if any(context.flag(name) for name in _OLDER) else context.flag(_DEPTH)
    if impl == "none" or depth is None or context.flag(_SWITCH):
        return ""  # the switch: MLM-CUDA-GRAPH-RC
    if impl != "transformer_engine" or scope != {"attn"} or depth != "selective":
        return (
            "CUDA graphs exclude recomputation, but for modules outside of attention with --cuda-graph-impl "
            "transformer_engine --cuda-graph-scope attn"
        )
    modules = {"core_attn", "mla_up_proj"} & set(context.items(_MODULES) or ("core_attn",))
    return f"--{_MODULES} {' '.join(sorted(modules))} is captured in the graph of attention" if modules else ""


# fmt: off
declare((
    needs("MLM-PADDING-FP8-15", "moe-router-padding-for-fp8", "fp8-format?",
          "Tokens are padded for FP8 only.", configured("0.15.3", 1328)),
    never("MLM-DELAY-WGRAD-REDUCE-13", "delay-wgrad-compute & overlap-grad-reduce",
          "Delayed weight gradients are not reduced during the backward pass.", validated("0.13.1", 1061),
          until=UNTIL_13),
    *by_either(never("MLM-RC-FP8-13", f"{_DEPTH}=selective & fp8-format & {_MODULES}~moe_act|layernorm",
          "These modules are not recomputed in FP8.", configured("0.13.1", 846), until=UNTIL_13)),
    needs("MLM-CUDA-GRAPH-TRACKER-13", "external-cuda-graph", "te-rng-tracker",
          "CUDA graphs need Transformer Engine's RNG tracker.", validated("0.13.1", 1083), until=UNTIL_13),
    never("MLM-CUDA-GRAPH-EXTERNAL-RC", f"external-cuda-graph & {_DEPTH}=full",
          "CUDA graphs exclude full recomputation.", validated("0.14.0", 1116), since=SINCE_14, until=UNTIL_14),
    checked("MLM-CUDA-GRAPH-RC-15", _recomputed_in_graph, "CUDA graphs hold no module that is recomputed.",
            configured("0.15.3", 1403), reads=f"{GRAPHS} {_DEPTH} {_MODULES} {' '.join(_OLDER)}", since=SINCE_15,
            flags=("cuda-graph-impl", "cuda-graph-scope", _DEPTH, _MODULES)),
    needs("MLM-RL-PACKING-15", "perform-rl-step & rl-use-sequence-packing",
          "seq-length<={rl-sequence-packing-bin-size}",
          "A packed sequence holds at least one sample.", validated("0.15.3", 415), since=SINCE_15),
), backends=PLAIN, since=SINCE_13, until=UNTIL_15)
# Checked in every later version, too (arguments.py:599, :1778 @core_v0.19.0).
declare((
    never("MLM-CUDA-GRAPH-BOTH", f"{_SWITCH} & external-cuda-graph",
          "CUDA graphs are Megatron-core's or Transformer Engine's.", validated("0.15.3", 469), since=SINCE_14),
    never("MLM-INFERENCE-THRESHOLD-GRAPH", f"inference-batch-times-seqlen-threshold>-1 & {_SWITCH}",
          "Pipelined inference does not use CUDA graphs.", validated("0.14.0", 1043)),
    never("MLM-INFERENCE-THRESHOLD-GRAPH-15", "inference-batch-times-seqlen-threshold>-1 & cuda-graph-impl!=none",
          "Pipelined inference does not use CUDA graphs.", validated("0.15.3", 1135), since=SINCE_15),
), backends=PLAIN, since=SINCE_13)
# fmt: on
