"""Checks of Megatron-core's TransformerConfig and ModelParallelConfig: recomputation, experts, FP8, offloading."""

from backends.megatron_lm.rules.recomputed import by_either
from backends.megatron_lm.rules.versions import (
    BACKENDS,
    EVERY,
    ONLY_12,
    PLAIN,
    SINCE_12,
    SINCE_12_TO_13,
    SINCE_12_TO_14,
    SINCE_12_TO_15,
    SINCE_12_TO_17,
    UNTIL_14,
    UNTIL_17,
    arguments,
    config,
)
from launcher.rules.table import declare, needs, never
from launcher.rules.training import BALANCED_PER_TOKEN, BALANCED_PER_TOKEN_MESSAGE, DROPPED_BY_POSITION

_P2P = "!no-overlap-p2p-communication"
_PARALLEL = "megatron-core 0.12.1 model_parallel_config.py __post_init__"

# fmt: off
declare((
    never("MLM-RC-ACTIVATIONS-NUMBER", "recompute-activations & recompute-num-layers?",
          "The switch means selective recomputation, which has no number of layers.", config(712, 1182)),
    never("MLM-DISTRIBUTE-SP", "distribute-saved-activations & sequence-parallel & tensor-model-parallel-size>1 & "
          "recompute-granularity=full",
          "Sequence parallelism already distributes saved activations over tensor-parallel ranks.", config(718, 1188)),
    needs("MLM-PAD-CAPACITY", "moe-pad-expert-input-to-capacity", "moe-expert-capacity-factor>=0",
          "Experts' inputs are padded to a capacity, which needs its factor.", config(663, 1133)),
    never("MLM-DROP-POSITION", "moe-expert-capacity-factor? & moe-token-drop-policy=position",
          DROPPED_BY_POSITION,
          "Megatron-LM core_v0.16.1 megatron/core/transformer/moe/moe_utils.py:847; Megatron-LM core_v0.12.1 "
          "megatron/core/transformer/moe/moe_utils.py:580; measured: docs/parity.md",
          message="moe-token-drop-policy position: torch.topk chooses the tokens that are dropped, not their position",
          severity="warning"),
    needs("MLM-DEFER-EMBEDDING-PP", "defer-embedding-wgrad-compute", "pipeline-model-parallel-size>1",
          "The embedding's weight gradient is deferred into pipeline bubbles.", _PARALLEL),
    never("MLM-DEFER-EMBEDDING-FUSION", "defer-embedding-wgrad-compute & no-gradient-accumulation-fusion",
          "Deferring the embedding's weight gradient needs fused gradient accumulation.", _PARALLEL),
    needs("MLM-SQUARED-RELU", "squared-relu", "!swiglu",
          "Both set the activation function of the MLP.", arguments(1028, 1339)),
), backends=BACKENDS, versions=EVERY)
declare((
    needs("MLM-FP8-FIRST-LAST-DELAYED", "fp8-format & first-last-layers-bf16",
          "fp8-recipe=tensorwise|mxfp8|blockwise|custom",
          "Delayed scaling cannot leave the first and last layers in bf16.", config(583, 991)),
    needs("MLM-FP8-PARAM", "fp8-param-gather", "fp8-format", "Weights in FP8 need matrix products in "
        "FP8.", config(615, 1028)),
    needs("MLM-FP8-PARAM-OPTIMIZER", "fp8-param-gather",
          "use-distributed-optimizer or use-torch-fsdp2 or use-megatron-fsdp",
          "Weights in FP8 are gathered by the distributed optimizer or FSDP.",
          "Megatron-LM core_v0.12.1 arguments.py:551; core_v0.16.1 arguments.py:656"),
    needs("MLM-BALANCE-PER-TOKEN", "num-experts>0 & calculate-per-token-loss & moe-aux-loss-coeff>0",
          "!eod-mask-loss & job.task.type!=sft",
          BALANCED_PER_TOKEN,
          "Megatron-LM core_v0.16.1 megatron/core/transformer/moe/router.py:466; Megatron-LM core_v0.12.1 "
          "megatron/core/transformer/moe/router.py:312; measured: docs/parity.md",
          message=f"moe-aux-loss-coeff {{moe-aux-loss-coeff}} {BALANCED_PER_TOKEN_MESSAGE}",
          severity="warning"),
    needs("MLM-DEEPEP-FLEX", "moe-enable-deepep", "moe-token-dispatcher-type=flex",
          "DeepEP dispatches tokens for the flex dispatcher only.", config(631, 1065)),
    needs("MLM-SHARED-OVERLAP", "moe-shared-expert-overlap & moe-shared-expert-intermediate-size?",
          "moe-token-dispatcher-type=alltoall",
          "The shared expert overlaps with the all-to-all dispatcher only.", config(649, 1093),
          versions=SINCE_12_TO_17),
    never("MLM-SHARED-SIZE", "moe-shared-expert-intermediate-size? & moe-shared-expert-intermediate-size<=0",
          "The width of the shared expert is positive.", config(641, 1085)),
    *by_either(needs("MLM-RC-MOE-ACT", "recompute-granularity=selective & recompute-modules~moe_act",
          "moe-grouped-gemm", "The experts' activation is recomputed inside grouped GEMM only.", config(736, 1214))),
    *by_either(needs("MLM-RC-MLA-UP", "recompute-granularity=selective & recompute-modules~mla_up_proj",
          "multi-latent-attention", "Only latent attention has an up-projection.", config(741, 1219))),
    never("MLM-RC-MOE-LAYER", "moe-layer-recompute & recompute-granularity=full",
          "Full recomputation covers MoE layers already.", config(760, 1261)),
    needs("MLM-UNEVEN-ACCOUNT-FIRST", "decoder-first-pipeline-num-layers?",
          "!account-for-embedding-in-pipeline-split & !account-for-loss-in-pipeline-split",
          "Uneven stages are given by their layers or by counting embedding and loss as layers, not "
          "both.", config(773, 1300)),
    needs("MLM-UNEVEN-ACCOUNT-LAST", "decoder-last-pipeline-num-layers?",
          "!account-for-embedding-in-pipeline-split & !account-for-loss-in-pipeline-split",
          "Uneven stages are given by their layers or by counting embedding and loss as layers, not "
          "both.", config(773, 1300)),
    never("MLM-UNEVEN-FIRST-EMPTY", "decoder-first-pipeline-num-layers? & decoder-first-pipeline-num-layers<=0",
          "The first stage has at least one layer.", config(788, 1369)),
    never("MLM-UNEVEN-LAST-EMPTY", "decoder-last-pipeline-num-layers? & decoder-last-pipeline-num-layers<=0",
          "The last stage has at least one layer.", config(807, 1388)),
    needs("MLM-GROUPS-NUMBER", "moe-router-group-topk", "moe-router-num-groups",
          "Group-limited routing needs the number of groups.", config(993, 1650)),
    never("MLM-MLA-INTERLEAVED", "multi-latent-attention & rotary-interleaved",
          "Multi-latent attention does not support interleaved RoPE.", config(933, 1559)),
    never("MLM-XAVIER", "init-method-xavier-uniform",
          "It sets scaled_init_method, which TransformerConfig does not have: a TypeError.", arguments(1033, 1345)),
    needs("MLM-WARMUP-FLUSH", "overlap-p2p-communication-warmup-flush", "num-layers-per-virtual-pipeline-stage? & "
          f"{_P2P} or num-virtual-stages-per-pipeline-rank? & {_P2P} or pipeline-model-parallel-layout? & {_P2P}",
          "Only the interleaved schedule overlaps its first and last exchanges.",
          "megatron-core 0.12.1 and 0.16.1 model_parallel_config.py overlap_p2p_comm_warmup_flush"),
    needs("MLM-DENSE-GROUPS", "moe-router-group-topk>0", "num-experts>0",
          "Group-limited routing needs experts.", config(998, 1654)),
    never("MLM-IN-MEMORY", "non-persistent-ckpt-type=in_memory",
          "Non-persistent checkpoints are global or local.", arguments(280, 297)),
    needs("MLM-LOCAL-SPEC", "attention-backend=local", "spec~local",
          "Local attention needs the local layer specification.", arguments(319, 321)),
), backends=BACKENDS, versions=SINCE_12)
declare((
    never("MLM-EXPERTS-ZERO", "num-experts=0",
          "Megatron-LM checks 0 experts as an encoder configuration and refuses it: remove the argument.",
          "Megatron-LM core_v0.12.1 arguments.py:301", versions=SINCE_12_TO_13),
    never("MLM-FP8-MXFP8-PARAM", "fp8-format & fp8-param-gather & fp8-recipe=mxfp8",
          "MXFP8 does not keep weights in FP8.", config(612)),
    never("MLM-FLEX-PAD", "moe-token-dispatcher-type=flex & moe-pad-expert-input-to-capacity",
          "The flex dispatcher does not pad experts' inputs.", config(635), versions=SINCE_12_TO_15),
    needs("MLM-CAPACITY-BALANCE", "moe-expert-capacity-factor?",
          "moe-router-load-balancing-type=aux_loss|seq_aux_loss|none",
          "Tokens are dropped only under an auxiliary loss or no balancing.", config(657), versions=SINCE_12_TO_14),
    never("MLM-CUDA-GRAPH-RC", "enable-cuda-graph & recompute-granularity?",
          "CUDA graphs exclude recomputation.", config(1017), versions=SINCE_12_TO_15),
    never("MLM-CUDA-GRAPH-RC-ACTIVATIONS", "enable-cuda-graph & recompute-activations",
          "CUDA graphs exclude recomputation.", config(1017), versions=SINCE_12_TO_15),
), backends=BACKENDS, versions=ONLY_12)
declare((
    needs("MLM-MOE-BIAS", "num-experts>0", "disable-bias-linear",
          "MoE layers do not support biases in experts.", config(946), until=UNTIL_14),
    never("MLM-SEQ-DISPATCHER-FUSION", "moe-token-dispatcher-type=alltoall_seq & moe-permute-fusion",
          "The alltoall_seq dispatcher does not support fused permutation.", config(954)),
    needs("MLM-MLA-FUSION", "multi-latent-attention & !no-rope-fusion", "position-embedding-type!=rope",
          "Multi-latent attention has no fused RoPE kernel.", config(930)),
    never("MLM-UNEVEN-FIRST", "decoder-first-pipeline-num-layers? & pipeline-model-parallel-size=1",
          "A first or last stage of another size needs several pipeline stages.", config(779)),
    never("MLM-UNEVEN-LAST", "decoder-last-pipeline-num-layers? & pipeline-model-parallel-size=1",
          "A first or last stage of another size needs several pipeline stages.", config(779)),
), backends=PLAIN, until=ONLY_12["megatron_lm"][1])
# fmt: on
# MindSpeed-LLM disables this check during validation (core/transformer/transformer_config.py:21 @26.1.0).
# fmt: off
declare((
    needs("MLM-TOPK-ONE", "moe-router-topk=1 & moe-router-score-function=softmax",
          "moe-router-pre-softmax or moe-router-load-balancing-type=sinkhorn",
          "Softmax over a single selected expert has no gradient, so it is computed before the selection.",
          config(984, 1641)),
    needs("MLM-EXPERT-BIAS", "moe-router-enable-expert-bias", "moe-router-score-function=sigmoid",
          "The learned bias of experts is defined for sigmoid scores, and checked for dense models, too.",
          config(958, 1595), until=UNTIL_17),
    needs("MLM-RETRO", "retro-add-retriever", "retro-project-dir?",
          "Retrieval reads its lengths and samples from the preprocessed project directory.", arguments(796)),
    never("MLM-ROPE-TYPE", "rope-type=yarn & !multi-latent-attention",
          "The argument is for multi-latent attention only: other models use --position-embedding-type.",
          arguments("", 1357)),
), backends=PLAIN)
# fmt: on
