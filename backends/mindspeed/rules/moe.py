"""Experts on Ascend: dispatchers, overlap of communication, capacity, LoRA."""

from backends.mindspeed.rules.tables import FEATURES, LLM, MINDSPEED, OLD, OLD_ARGUMENTS, SINCE, excludes
from launcher.rules.registry import RuleContext
from launcher.rules.table import checked, declare, needs, never

_ALLTOALL = f"{FEATURES}/moe/moe_alltoall_overlap.py"
_ALLGATHER = f"{FEATURES}/moe/moe_allgather_overlap.py"
_MC2 = f"{FEATURES}/moe/moe_alltoall_mc2.py"
_FB = f"{FEATURES}/moe/fb_overlap.py"
_ROUTER = f"{LLM}/moe/moe_router.py"
_NEXT = f"{LLM}/transformer/qwen3_next_attention/qwen3_next_feature.py"
_PERMUTE = f"{FEATURES}/fusions/fused_moe_permute.py"
_DISPATCHER = "moe-token-dispatcher-type"
_A2A = "moe-alltoall-overlap-comm"
_GATHER = "moe-allgather-overlap-comm"

_BLOCK = "MindSpeed-LLM 26.1.0 core/transformer/transformer_block.py:163-166"


def _list_of_layers(context: RuleContext) -> bool:
    return "[" in str(context.flag("moe-layer-freq"))


def _selects_layers(context: RuleContext) -> bool:
    return str(context.flag("moe-layer-freq", 1)) not in ("1", "-1")


# fmt: off
declare((
    checked("MS-MOE-FREQ-LIST", _list_of_layers,
            "Layers are counted modulo the interval of MoE layers, which must be a number.", _BLOCK,
            message="--moe-layer-freq {moe-layer-freq} is a list; beside --first-k-dense-replace it is an interval",
            when="num-experts>0 & first-k-dense-replace", reads="moe-layer-freq",
            flags=("moe-layer-freq", "first-k-dense-replace")),
    checked("MS-MOE-FREQ-ALONE", _selects_layers,
            "The interval is read only beside --first-k-dense-replace: without it every layer is an MoE layer.", _BLOCK,
            message="--moe-layer-freq {moe-layer-freq} is not read without --first-k-dense-replace (-1: no dense layer "
            "at the start): every layer is an MoE layer",
            when="num-experts>0 & !first-k-dense-replace", reads="moe-layer-freq",
            flags=("moe-layer-freq", "first-k-dense-replace"), severity="warning"),
    never("MS-MOE-CAPACITY-ALLGATHER", f"moe-expert-capacity-factor? & {_DISPATCHER}=allgather",
          "The allgather dispatcher does not support a capacity factor.", f"{_ROUTER}:55"),
    needs("MS-MOE-CAPACITY-BALANCE", "moe-expert-capacity-factor?", "moe-router-load-balancing-type=aux_loss|none",
          "Tokens are dropped under aux_loss or no balancing only.", f"{_ROUTER}:61"),
    never("MS-MOE-CAPACITY-NEGATIVE", "moe-expert-capacity-factor<0",
          "A negative capacity factor ends in a TypeError: remove it to drop no tokens.", f"{_ROUTER}:58"),
    never("MS-MOE-PADDING", "stage=sft & num-experts>0 & moe-aux-loss-coeff>0 & moe-router-load-balancing-type!=none "
          "& !neat-pack & !no-pad-to-seq-lengths",
          "Samples of fine-tuning are padded to the sequence length, and the load-balancing loss counts the padding.",
          "MindSpeed-LLM 26.1.0 mindspeed_llm/legacy/data/data_samplers.py:70; measured: docs/parity.md",
          message="samples are padded to {seq-length} tokens, and routers balance the padding with the tokens",
          severity="warning", since="2.3"),
    needs("MS-MOE-GREEDY-TOPK", "moe-router-load-balancing-type=group_limited_greedy & !moe-router-group-topk?",
          "moe-router-group-topk?",
          "Group-limited routing needs the number of groups that a token is routed to.", f"{_ROUTER}:70"),
    needs("MS-MOE-GREEDY-SCALE", "moe-router-load-balancing-type=group_limited_greedy & moe-router-group-topk?",
          "moe-router-topk-scaling-factor?",
          "Group-limited routing needs the scaling factor of the scores.", f"{_ROUTER}:72"),
    never("MS-MOE-GROUP-TOPK-ZERO", "moe-router-group-topk=0",
          "A token is routed to at least one group.", f"{LLM}/arguments/deprecated_args.py:87", since="26.0"),
    needs("MS-MOE-EXTEND-NEEDS", "moe-tp-extend-ep", "moe-permutation-async-comm & moe-grouped-gemm",
          "Tensor-parallel ranks as expert ranks need asynchronous dispatch and grouped GEMM.",
          f"{FEATURES}/moe/tp_extend_ep.py:25"),
    never("MS-MOE-EXTEND-CAPACITY", "moe-tp-extend-ep & moe-expert-capacity-factor?",
          "Tensor-parallel ranks as expert ranks exclude a capacity factor.", f"{FEATURES}/moe/tp_extend_ep.py:28"),
    needs("MS-MOE-A2A-DISPATCHER", _A2A, f"{_DISPATCHER}=alltoall|alltoall_seq",
          "Overlapped all-to-all communication needs an all-to-all dispatcher.", f"{_ALLTOALL}:25"),
    needs("MS-MOE-A2A-EP", _A2A, "expert-model-parallel-size>1",
          "All-to-all communication needs expert parallelism.", f"{_ALLTOALL}:28", since="26.1"),
    needs("MS-MOE-A2A-GEMM", f"{_A2A} & {_DISPATCHER}=alltoall|alltoall_seq", "moe-grouped-gemm",
          "Overlapped all-to-all communication needs grouped GEMM.", f"{_ALLTOALL}:32, 43"),
    never("MS-MOE-A2A-EXTEND", f"{_A2A} & {_DISPATCHER}=alltoall & moe-tp-extend-ep",
          "Only the alltoall_seq dispatcher uses tensor-parallel ranks as expert ranks.", f"{_ALLTOALL}:34"),
    needs("MS-MOE-A2A-ASYNC", f"{_A2A} & {_DISPATCHER}=alltoall_seq", "moe-permutation-async-comm",
          "The alltoall_seq dispatcher overlaps with asynchronous permutation only.", f"{_ALLTOALL}:41"),
    needs("MS-MOE-A2A-TP", f"{_A2A} & {_DISPATCHER}=alltoall_seq & tensor-model-parallel-size>1", "moe-tp-extend-ep",
          "The alltoall_seq dispatcher overlaps at tp above 1 only with tensor-parallel ranks as expert ranks.",
          f"{_ALLTOALL}:45"),
    needs("MS-MOE-GATHER-DISPATCHER", _GATHER, f"{_DISPATCHER}=allgather",
          "Overlapped all-gather communication needs the allgather dispatcher.", f"{_ALLGATHER}:25"),
    needs("MS-MOE-GATHER-ASYNC", f"{_GATHER} & {_DISPATCHER}=allgather",
          "moe-permutation-async-comm & moe-grouped-gemm",
          "Overlapped gathering needs asynchronous permutation and grouped GEMM.", f"{_ALLGATHER}:28-30"),
    *excludes("MS-MOE-A2A", _A2A, ("use-ascend-mc2",), "Overlapped all-to-all communication", f"{_ALLTOALL}:23"),
    *excludes("MS-MOE-GATHER", _GATHER, ("use-ascend-mc2",), "Overlapped gathering", f"{_ALLGATHER}:23"),
    needs("MS-MOE-MC2-DISPATCHER", "moe-alltoall-mc2", f"{_DISPATCHER}=alltoall|alltoall_seq",
          "Fused all-to-all communication (MC2) needs an all-to-all dispatcher.", f"{_MC2}:29", since="26.0"),
    needs("MS-MOE-MC2-ETP", f"moe-alltoall-mc2 & {_DISPATCHER}=alltoall",
          "expert-tensor-parallel-size=1 or tensor-model-parallel-size=1 & !expert-tensor-parallel-size?",
          "Fused all-to-all communication does not split experts by tensor parallelism.", f"{_MC2}:38", since="26.0"),
    needs("MS-MOE-MC2-TP", f"moe-alltoall-mc2 & {_DISPATCHER}=alltoall_seq", "tensor-model-parallel-size=1",
          "Fused all-to-all communication (MC2) with alltoall_seq does not support tensor parallelism.", f"{_MC2}:35",
          since="26.0"),
    never("MS-MOE-MC2-CAPACITY", f"moe-alltoall-mc2 & {_DISPATCHER}=alltoall & moe-expert-capacity-factor?",
          "Fused all-to-all communication does not support a capacity factor.", f"{_MC2}:40", since="26.0"),
    *excludes("MS-MOE-MC2", "moe-alltoall-mc2", ("use-ascend-mc2", _A2A, _GATHER, "moe-fb-overlap", "moe-tp-extend-ep"),
              "Fused all-to-all communication", f"{_MC2}:22-26", since="26.0"),
    never("MS-MOE-PERMUTE-ALLGATHER", f"moe-permute-fusion & {_DISPATCHER}=allgather",
          "The allgather dispatcher does not support fused permutation.", f"{_PERMUTE}:45"),
    never("MS-MOE-PERMUTE-ALLGATHER-ALIAS",
          f"use-fused-moe-token-permute-and-unpermute & !moe-permute-fusion & {_DISPATCHER}=allgather",
          "The allgather dispatcher does not support fused permutation.", f"{_PERMUTE}:45"),
    needs("MS-MOE-PERMUTE-CAPACITY", "moe-permute-fusion & moe-expert-capacity-factor>0",
          "moe-pad-expert-input-to-capacity",
          "Fused permutation drops tokens only where experts' inputs are padded.", f"{_PERMUTE}:50"),
    needs("MS-MOE-PERMUTE-CAPACITY-ALIAS",
          "use-fused-moe-token-permute-and-unpermute & !moe-permute-fusion & moe-expert-capacity-factor>0",
          "moe-pad-expert-input-to-capacity",
          "Fused permutation drops tokens only where experts' inputs are padded.", f"{_PERMUTE}:50"),
    needs("MS-MOE-SHARED-OVERLAP",
          "moe-shared-expert-overlap & n-shared-experts & !moe-shared-expert-intermediate-size?",
          f"{_DISPATCHER}=alltoall",
          "The shared experts, whose width follows from their number, overlap with the all-to-all dispatcher only.",
          "Megatron-LM core_v0.12.1 megatron/core/transformer/transformer_config.py:646"),
    needs("MS-MOE-GEMM-FUSION", "gemm-gradient-accumulation-fusion", "moe-grouped-gemm",
          "Gradients of experts are accumulated inside grouped GEMM.", f"{FEATURES}/moe/gmm.py:19"),
    needs("MS-MOE-LORA-DISPATCHER", "num-experts>0 & lora-target-modules", f"{_DISPATCHER}=alltoall_seq",
          "LoRA of MoE models supports the alltoall_seq dispatcher only.", f"{LLM}/finetune/lora.py:63"),
    never("MS-MOE-LORA-EXTEND", "lora-target-modules & moe-tp-extend-ep",
          "LoRA does not support tensor-parallel ranks as expert ranks.", f"{LLM}/finetune/lora.py:66", since="2.3"),
    needs("MS-MOE-ZERO-MEMORY", "moe-zero-memory=level0|level1", f"{_A2A} or moe-fb-overlap",
          "Dropping the activations of experts needs overlapped communication of experts.",
          f"{FEATURES}/moe/moe_zero_memory.py:34", since="2.3"),
    needs("MS-MOE-ZERO-MEMORY-OFF", "moe-zero-memory-num-layers?", "moe-zero-memory!=disable",
          "The number of layers needs --moe-zero-memory level0 or level1.",
          f"{FEATURES}/moe/moe_zero_memory.py:32"),
    needs("MS-MOE-UNPERM-SWAP", "moe-unperm2-mem-optim-swap", "moe-fb-overlap",
          "Swapping the second unpermutation needs moe-fb-overlap.", f"{_FB}:97"),
    *excludes("MS-FB", "moe-fb-overlap",
              ("overlap-grad-reduce", _A2A, "swap-attention", "moe-tp-extend-ep", "moe-zero-memory-num-layers",
               "recompute-in-bubble", "recompute-in-advance", "use-legacy-models"),
              "Overlapping forward and backward passes of experts", f"{_FB}:76-86; {FEATURES}/feature.py:63"),
    needs("MS-FB-GEMM", "moe-fb-overlap", "moe-grouped-gemm", "Overlapped experts use grouped GEMM.", f"{_FB}:87"),
    never("MS-FB-DISPATCHER", f"moe-fb-overlap & {_DISPATCHER}=allgather|alltoall_seq",
          "Overlapped experts use the alltoall or flex dispatcher.", f"{_FB}:89"),
    needs("MS-FB-EXPERTS", "moe-fb-overlap", "expert-model-parallel-size>1 & expert-tensor-parallel-size=1 or "
          "expert-model-parallel-size>1 & tensor-model-parallel-size=1 & !expert-tensor-parallel-size?",
          "Overlapped experts need expert parallelism, without tensor parallelism of experts.",
          f"{_FB}:92"),
    needs("MS-FB-SCHEDULE", "moe-fb-overlap & pipeline-model-parallel-size>1", "schedules-method=dualpipev or "
          "num-layers-per-virtual-pipeline-stage or num-virtual-stages-per-pipeline-rank or "
          "pipeline-model-parallel-layout",
          "Overlapped experts in a pipeline need the interleaved or the DualPipeV schedule.", f"{_FB}:107",
          since="2.3"),
    never("MS-GLOBAL-AUX-PP", "use-global-aux-loss & pipeline-model-parallel-size>1",
          "The global balancing loss does not support pipeline parallelism.", f"{_NEXT}:39", since="26.0"),
    needs("MS-GLOBAL-AUX-WRITTEN", "use-global-aux-loss", "pipeline-model-parallel-size?",
          "It is read before Megatron's defaults are set, so it must be written.", f"{_NEXT}:38", since="26.0"),
    never("MS-GLOBAL-AUX-ROUTER", "use-global-aux-loss",
          "Two features replace the forward function of the router, which fails at start-up.",
          f"{_NEXT}:47; {LLM}/moe/moe_router.py:104", since="26.1"),
    *excludes("MS-GLOBAL-AUX", "use-global-aux-loss", (_A2A, _GATHER, "moe-fb-overlap"), "The global balancing loss",
              f"{_NEXT}:41-45", since="26.0"),
), backends=MINDSPEED, since=SINCE)
declare((
    needs("MS-MOE-OVERLAP-NEEDS-OLD", _A2A, "moe-permutation-async-comm & moe-grouped-gemm",
          "Overlapped dispatch needs asynchronous permutation and grouped GEMM.", f"{OLD_ARGUMENTS}:1063"),
    needs("MS-MOE-GATHER-NEEDS-OLD", _GATHER, "moe-permutation-async-comm & moe-grouped-gemm",
          "Overlapped dispatch needs asynchronous permutation and grouped GEMM.", f"{OLD_ARGUMENTS}:1063"),
    needs("MS-MOE-A2A-DISPATCHER-OLD", _A2A, f"{_DISPATCHER}=alltoall",
          "Overlapped all-to-all communication needs the all-to-all dispatcher.", f"{OLD_ARGUMENTS}:1066"),
    needs("MS-MOE-A2A-TP-OLD", f"{_A2A} & tensor-model-parallel-size>1", "moe-tp-extend-ep",
          "Overlapped dispatch at tp above 1 needs tensor-parallel ranks as expert ranks.", f"{OLD_ARGUMENTS}:1068"),
    needs("MS-MOE-GATHER-DISPATCHER-OLD", _GATHER, f"{_DISPATCHER}=allgather",
          "Overlapped all-gather communication needs the allgather dispatcher.", f"{OLD_ARGUMENTS}:1081"),
    needs("MS-MOE-GATHER-RANKS-OLD", _GATHER, "tensor-model-parallel-size>1 or expert-model-parallel-size>1",
          "Overlapped all-gather communication needs tp or ep above 1.", f"{OLD_ARGUMENTS}:1083"),
    needs("MS-MOE-ZERO-MEMORY-OLD", "moe-zero-memory=level0|level1", f"{_A2A} or moe-fb-overlap",
          "Dropping the activations of experts needs overlapped communication of experts.", f"{OLD_ARGUMENTS}:1077"),
    never("MS-MOE-ZERO-MEMORY-RC-OLD", "moe-zero-memory=level0|level1 & recompute-method",
          "Dropping experts' activations excludes full recomputation.", f"{OLD_ARGUMENTS}:1079"),
    needs("MS-MOE-SHARED-GATE-OLD", "shared-expert-gate", "no-gradient-accumulation-fusion",
          "A gated shared expert excludes fused gradient accumulation.", f"{OLD_ARGUMENTS}:1085"),
    never("MS-MOE-VARIABLE-OLD", f"variable-seq-lengths & num-experts>0 & {_DISPATCHER}=allgather",
          "The allgather dispatcher needs sequences of one length.", f"{OLD_ARGUMENTS}:1039"),
    needs("MS-MOE-FREQ-TOGETHER-OLD", "num-experts>0 & first-k-dense-replace?", "moe-layer-freq?",
          "The positions of MoE layers need both arguments.", f"{OLD_ARGUMENTS}:1131"),
    never("MS-MOE-FREQ-DENSE-OLD", "!num-experts & first-k-dense-replace?",
          "Positions of MoE layers need an MoE model.", f"{OLD_ARGUMENTS}:1128"),
    needs("MS-MOE-MCORE-OLD", "num-experts>1", "use-mcore-models",
          "MoE layers need Megatron-core models.", f"{OLD_ARGUMENTS}:1060"),
), backends=MINDSPEED, until=OLD)
# fmt: on
