"""What only the TransformerConfig of core 0.16 refuses: overlap of expert parallelism, offloading, layouts."""

from backends.megatron_lm.rules_versions import ONLY_16, PLAIN, config, says
from launcher.rules.table import declare

_OVERLAP = "overlap-moe-expert-parallel-comm"
declare(
    (
        says(
            "MLM-CAPACITY-BALANCE-16",
            "moe-expert-capacity-factor?",
            "moe-router-load-balancing-type=aux_loss|seq_aux_loss|global_aux_loss|none",
            "Tokens are dropped under the auxiliary losses only.",
            config("", 1126),
        ),
        says(
            "MLM-MOE-BIAS-ETP",
            "num-experts>0 & !disable-bias-linear",
            "expert-tensor-parallel-size=1 or tensor-model-parallel-size=1 & !expert-tensor-parallel-size?",
            "Experts with a bias are not split by tensor parallelism.",
            config("", 1589),
        ),
        says(
            "MLM-DENSE-MOE-WIDTH",
            "moe-ffn-hidden-size? & !num-experts",
            "",
            "The width of experts belongs to MoE models.",
            config("", 1059),
        ),
        says(
            "MLM-RC-SHARED-OVERLAP",
            "recompute-granularity=selective & recompute-modules~shared_experts & moe-shared-expert-overlap & "
            "moe-shared-expert-intermediate-size?",
            "",
            "An overlapped shared expert cannot be recomputed.",
            config("", 1237),
        ),
        says(
            "MLM-RC-FP8-DELAYED",
            "recompute-granularity=selective & fp8-format & recompute-modules~moe_act|layernorm",
            "fp8-recipe!=delayed",
            "Delayed scaling cannot repeat these modules.",
            config("", 1244),
        ),
        says(
            "MLM-FINE-OFFLOAD-MODULES",
            "fine-grained-activation-offloading",
            "offload-modules",
            "Offloading single activations needs their modules.",
            config("", 1272),
        ),
        says(
            "MLM-FINE-OFFLOAD-ATTENTION",
            "fine-grained-activation-offloading & offload-modules~attn_proj",
            "offload-modules~core_attn",
            "The projection's input is core attention's output, so both are offloaded.",
            config("", 1288),
        ),
        says(
            "MLM-FINE-OFFLOAD-CPU",
            "fine-grained-activation-offloading & cpu-offloading-num-layers>0",
            "",
            "Activations are offloaded singly or by layers.",
            config("", 1269),
        ),
        says(
            "MLM-LAYOUT-FIRST",
            "pipeline-model-parallel-layout & decoder-first-pipeline-num-layers?",
            "",
            "The layout already says how many layers each stage has.",
            config("", 1317),
        ),
        says(
            "MLM-LAYOUT-LAST",
            "pipeline-model-parallel-layout & decoder-last-pipeline-num-layers?",
            "",
            "The layout already says how many layers each stage has.",
            config("", 1317),
        ),
        says(
            "MLM-LAYOUT-ACCOUNT",
            "pipeline-model-parallel-layout",
            "!account-for-embedding-in-pipeline-split & !account-for-loss-in-pipeline-split",
            "The layout already says where embedding and loss are.",
            config("", 1317),
        ),
        says(
            "MLM-EP-OVERLAP-EP",
            _OVERLAP,
            "expert-model-parallel-size>1",
            "It overlaps expert parallelism.",
            config("", 1863),
        ),
        says(
            "MLM-EP-OVERLAP-DISPATCHER",
            _OVERLAP,
            "moe-token-dispatcher-type=alltoall|flex",
            "Only these dispatchers overlap with another micro-batch.",
            config("", 1866),
        ),
        says(
            "MLM-EP-OVERLAP-VPP",
            f"{_OVERLAP} & pipeline-model-parallel-size>1",
            "num-layers-per-virtual-pipeline-stage or num-virtual-stages-per-pipeline-rank or "
            "pipeline-model-parallel-layout",
            "In a pipeline the overlap needs the interleaved schedule.",
            config("", 1858),
        ),
        says(
            "MLM-EP-OVERLAP-RC",
            f"{_OVERLAP} & recompute-granularity=full",
            "",
            "Full recomputation would repeat the overlapped communication.",
            config("", 1871),
        ),
        says(
            "MLM-EP-OVERLAP-RC-METHOD",
            f"{_OVERLAP} & recompute-method",
            "",
            "The overlap takes no recompute method.",
            config("", 1874),
        ),
        says(
            "MLM-EP-OVERLAP-HALF",
            _OVERLAP,
            "bf16 or fp16",
            "The overlap is written for half precision.",
            config("", 1882),
        ),
        says(
            "MLM-EP-OVERLAP-SHARED",
            f"{_OVERLAP} & moe-shared-expert-overlap",
            "",
            "The shared expert is overlapped by one of the two.",
            config("", 1886),
        ),
        says(
            "MLM-EP-OVERLAP-MTP",
            f"{_OVERLAP} & mtp-num-layers>1",
            "",
            "The overlap knows one layer of multi-token prediction.",
            config("", 1889),
        ),
        says(
            "MLM-EP-OVERLAP-MTP-PP",
            f"{_OVERLAP} & mtp-num-layers=1",
            "pipeline-model-parallel-size>1",
            "The overlap with multi-token prediction needs a pipeline.",
            config("", 1893),
        ),
        says(
            "MLM-DELAY-WGRAD-OVERLAP",
            "delay-wgrad-compute",
            _OVERLAP,
            "Weight gradients are delayed into the overlap.",
            config("", 1910),
        ),
        says(
            "MLM-MLA-ROPE-FUSION",
            "multi-latent-attention & !no-rope-fusion & position-embedding-type=rope",
            "rope-type=yarn|None",
            "The fused rotary kernel of latent attention is YaRN's.",
            config("", 2068),
        ),
    ),
    backends=PLAIN,
    since=ONLY_16[0],
)
