"""Training of mixture-of-experts layers."""

from launcher.job.option import option
from launcher.job.sources import ARGUMENTS, TRANSFORMER_CONFIG
from launcher.records import dataclass

_ASCEND = "Ascend MindSpeed features"


@dataclass(frozen=True, slots=True, kw_only=True)
class Moe:
    """Training of experts: routing, balance, dispatch."""

    use_upcycling: bool | None = option(
        None,
        "Upcycle a dense checkpoint to experts, once.",
        source=f"{ARGUMENTS} --moe-use-upcycling",
        affects_training=True,
    )
    token_dispatcher_type: str = option(
        "alltoall",
        "Token dispatcher.",
        source=f"{TRANSFORMER_CONFIG}.moe_token_dispatcher_type",
        choices=("alltoall", "allgather", "flex", "alltoall_seq"),
        affects_training=True,
    )
    grouped_gemm: bool | None = option(
        None, "One kernel for all local experts.", source=f"{TRANSFORMER_CONFIG}.moe_grouped_gemm"
    )
    use_legacy_grouped_gemm: bool | None = option(
        None,
        "Megatron's older kernel for all local experts instead of Transformer Engine's.",
        source=f"{TRANSFORMER_CONFIG}.moe_use_legacy_grouped_gemm",
    )
    permute_fusion: bool | None = option(
        None, "Fused token permutation.", source=f"{TRANSFORMER_CONFIG}.moe_permute_fusion"
    )
    shared_expert_overlap: bool | None = option(
        None, "Overlap the shared expert with dispatch.", source=f"{TRANSFORMER_CONFIG}.moe_shared_expert_overlap"
    )
    dispatch_overlap: bool | None = option(
        None, "Overlap dispatch communication with computation.", source=f"{_ASCEND} --moe-permutation-async-comm"
    )
    batch_overlap: bool | None = option(
        None,
        "Overlap one micro-batch's dispatch with another's computation.",
        source="Megatron overlap_moe_expert_parallel_comm; MindSpeed --moe-fb-overlap",
    )
    load_balancing_type: str = option(
        "aux_loss",
        "How the load of experts is balanced.",
        source=f"{TRANSFORMER_CONFIG}.moe_router_load_balancing_type",
        choices=("aux_loss", "seq_aux_loss", "global_aux_loss", "sinkhorn", "none"),
        affects_training=True,
    )
    aux_loss_coeff: float = option(
        0.0,
        "Weight of the balancing loss.",
        source=f"{TRANSFORMER_CONFIG}.moe_aux_loss_coeff",
        minimum=0,
        affects_training=True,
    )
    z_loss_coeff: float | None = option(
        None,
        "Weight of the router's z-loss.",
        source=f"{TRANSFORMER_CONFIG}.moe_z_loss_coeff",
        minimum=0,
        affects_training=True,
    )
    bias_update_rate: float | None = option(
        None,
        "Step of the learned expert bias.",
        source=f"{TRANSFORMER_CONFIG}.moe_router_bias_update_rate",
        minimum=0,
        affects_training=True,
    )
    router_dtype: str = option(
        "fp32",
        "Precision of routing.",
        source=f"{TRANSFORMER_CONFIG}.moe_router_dtype",
        choices=("fp32", "fp64", "model"),
        affects_training=True,
    )
    capacity_factor: float | None = option(
        None,
        "Capacity of an expert, relative to an even share of tokens; none: no token is dropped.",
        source=f"{TRANSFORMER_CONFIG}.moe_expert_capacity_factor",
        minimum=0,
        affects_training=True,
    )
    pad_to_capacity: bool | None = option(
        None,
        "Pad each expert's input to its capacity.",
        source=f"{TRANSFORMER_CONFIG}.moe_pad_expert_input_to_capacity",
    )
    token_drop_policy: str | None = option(
        None,
        "Which tokens beyond capacity are dropped.",
        source=f"{TRANSFORMER_CONFIG}.moe_token_drop_policy",
        choices=("probs", "position"),
        affects_training=True,
    )
    input_jitter_eps: float | None = option(
        None,
        "Noise on router inputs.",
        source=f"{TRANSFORMER_CONFIG}.moe_input_jitter_eps",
        minimum=0,
        affects_training=True,
    )
    deepep: bool | None = option(None, "DeepEP kernels for dispatch.", source=f"{TRANSFORMER_CONFIG}.moe_enable_deepep")
    router_fusion: bool | None = option(None, "Fused routing.", source=f"{TRANSFORMER_CONFIG}.moe_router_fusion")
    force_load_balancing: bool | None = option(
        None,
        "Distribute tokens evenly, ignoring the router: to measure speed, not to train.",
        source=f"{TRANSFORMER_CONFIG}.moe_router_force_load_balancing",
        affects_training=True,
    )
    tp_extend_ep: bool | None = option(
        None,
        "Use the tensor-parallel ranks as expert-parallel ranks inside experts.",
        source=f"{_ASCEND} --moe-tp-extend-ep",
    )
