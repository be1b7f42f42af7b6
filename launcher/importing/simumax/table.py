"""Every field of SimuMax's three input files: its type, and the field of a job that it becomes, or why none.

Source: SimuMax 1.2 (MooreThreads/SimuMax 4dcaae5), simumax/core/config.py StrategyConfig, ModelConfig, SystemConfig.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from launcher.records import dataclass

INT, NUMBER, BOOL, TEXT, LIST, OBJECT = "a whole number", "a number", "true or false", "a text", "a list", "an object"


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldRow:
    """One field of a file.

    Attributes:
        type: what SimuMax expects.
        default: SimuMax's default; a field with this value that no job field takes is `implied`.
        to: the job field with the same meaning; empty: see `computed` and `reason`.
        computed: fields that a function derives from this one together with others.
        reason: why it has no field of a job.
        least: smallest number.
        choices: allowed values.
        required: SimuMax cannot run without it.
    """

    type: str
    default: Any = None
    to: str = ""
    computed: tuple[str, ...] = ()
    reason: str = ""
    least: float | None = None
    choices: tuple[str, ...] = ()
    required: bool = False


def _size(default: int | None, *computed: str, to: str = "", required: bool = False) -> FieldRow:
    return FieldRow(type=INT, default=default, to=to, computed=computed, least=1, required=required)


def _flag(default: bool, to: str = "", *computed: str) -> FieldRow:
    return FieldRow(type=BOOL, default=default, to=to, computed=computed)


def _net() -> FieldRow:
    return FieldRow(
        type=TEXT,
        default="auto",
        reason="SimuMax chooses the network of each group anew when it runs; the estimate takes it from the topology",
    )


def _without(type: str, default: Any, reason: str) -> FieldRow:
    return FieldRow(type=type, default=default, reason=reason)


_RECOMPUTE: Final = ("recompute.granularity", "recompute.method", "recompute.num_layers", "recompute.modules")
_TE: Final = "the estimate follows the version of Transformer Engine that the backend's version is built with"
_LABEL: Final = "SimuMax's own label: training does not read it"

STRATEGY: Final[Mapping[str, FieldRow]] = {
    "seq_len": _size(None, to="batch.seq_length", required=True),
    "micro_batch_size": _size(None, to="batch.micro_batch_size", required=True),
    "micro_batch_num": _size(None, "batch.global_batch_size", required=True),
    "dtype": FieldRow(type=TEXT, default="bf16", to="precision.dtype", choices=("bf16", "fp16", "fp32")),
    "fp8": _flag(False, "", "precision.fp8_format", "precision.fp8_recipe"),
    "world_size": _size(8, "cluster.nodes", "cluster.devices_per_node"),
    "tp_size": _size(1, to="parallel.tp"),
    "cp_size": _size(1, to="parallel.cp"),
    "pp_size": _size(1, to="parallel.pp"),
    "ep_size": _size(1, "parallel.ep"),
    "etp_size": _size(1, "parallel.etp"),
    "cp_comm_type": FieldRow(
        type=TEXT, default="a2a", computed=("parallel.cp_algorithm",), choices=("a2a", "all_gather", "p2p")
    ),
    "cp_a2a_mode": FieldRow(
        type=TEXT,
        default="async_cp",
        reason="temporaries of the exchange are estimated in one way",
        choices=("async_cp", "sync_cp"),
    ),
    "order_of_paralielism": _without(TEXT, "tp-cp-ep-dp-pp", "the order of ranks is the backend's default, the same"),
    "moe_dispatcher_policy": FieldRow(
        type=TEXT, default="all2all", computed=("moe.token_dispatcher_type",), choices=("all2all", "all2all-seq")
    ),
    "num_layers_in_first_pipeline_stage": _size(None, to="parallel.first_stage_layers"),
    "num_layers_in_last_pipeline_stage": _size(None, to="parallel.last_stage_layers"),
    "account_for_embedding_in_pipeline_split": _flag(False, "parallel.account_for_embedding"),
    "account_for_loss_in_pipeline_split": _flag(False, "parallel.account_for_loss"),
    "grad_reduce_in_bf16": _flag(False, "", "precision.grad_reduce_in_fp32"),
    "cache_groupgemm_col_fp8_inputs": _without(
        BOOL, False, "no backend of Launch keeps FP8 inputs of grouped products; their memory is estimated in BF16"
    ),
    "offload_groupgemm_col_inputs": _without(
        BOOL, False, "SimuMax moves the inputs to the host in no time; no backend of Launch has that switch"
    ),
    "attn_recompute": _flag(False, "", *_RECOMPUTE),
    "mla_rms_recompute": _flag(False, "", *_RECOMPUTE),
    "mlp_recompute": _flag(False, "", *_RECOMPUTE),
    "mlp_rms_recompute": _flag(False, "", *_RECOMPUTE),
    "enable_sequence_parallel": _flag(True, "", "parallel.sequence_parallel"),
    "interleaving_size": _size(1, "parallel.vpp"),
    "microbatch_group_size_per_vp_stage": _size(None, "parallel.microbatch_group_size"),
    "pp_comm_async": _flag(True, "", "overlap.p2p"),
    "enable_straggler_model": _without(BOOL, True, "an empirical factor of SimuMax for slow nodes; not estimated"),
    "zero_state": FieldRow(
        type=INT, default=1, computed=("parallel.distributed_optimizer",), least=0, choices=("0", "1", "2", "3")
    ),
    "attention_sparse_ratio": FieldRow(type=NUMBER, default=0.0, to="estimate.attention_sparsity", least=0),
    "enable_dropout": _without(BOOL, False, "SimuMax warns and ignores it"),
    "use_fp32_accum_grad": _flag(True, "", "precision.grad_reduce_in_fp32"),
    "use_accm_weight": _without(BOOL, True, "the estimate counts weight gradients as accumulated in place"),
    "enable_recompute": _flag(True, "", *_RECOMPUTE),
    "recompute_granularity": FieldRow(
        type=TEXT,
        computed=_RECOMPUTE,
        choices=("full_block", "attn_only", "mlp_only", "sdp_only", "selective_recompute"),
    ),
    "recompute_layer_num": FieldRow(type=INT, default=0, computed=_RECOMPUTE, least=0),
    "recompute_variance": _flag(False, "estimate.discard_last_output"),
    "megatron_recompute": _flag(False, "", *_RECOMPUTE),
    "megatron_recompute_modules": FieldRow(type=LIST, computed=_RECOMPUTE),
    "use_flash_sdp": _flag(True, "", "kernels.attention_backend"),
    "use_math_sdp": _flag(False, "", "kernels.attention_backend"),
    "use_fused_norm": _without(BOOL, True, "normalisation is fused in Transformer Engine's layers, without a switch"),
    "use_fused_swiglu": _flag(True, "kernels.bias_activation_fusion"),
    "use_fused_grad_accumulation": _flag(True, "kernels.gradient_accumulation_fusion"),
    "cross_entropy_loss_fusion": _flag(False, "kernels.cross_entropy_fusion", "kernels.cross_entropy_fusion_impl"),
    "overlap_grad_reduce": _without(
        BOOL, True, "SimuMax does not read it: its gradient reduction is never overlapped (set overlap.grad_reduce)"
    ),
    "te_version": _without(TEXT, None, _TE),
    "te_dummy_wgrad_min_version": _without(TEXT, "2.3.0", _TE),
    "te_cp_a2a_save_pre_posta2a_min_version": _without(TEXT, "2.8.0", _TE),
    "te_grouped_linear_dummy_wgrad_min_version": _without(TEXT, "2.10.0", _TE),
    **{f"{name}_net": _net() for name in ("tp", "cp", "pp", "dp", "ep", "etp", "edp")},
    "dispatch_probs": _flag(False, "estimate.dispatch_probs"),
    "mem_factor": FieldRow(type=NUMBER, default=0.94, to="estimate.mem_factor", least=0.1),
}

MODEL: Final[Mapping[str, FieldRow]] = {
    "model_type": FieldRow(type=TEXT, reason="follows from the number of experts", choices=("dense", "moe")),
    "model_name": FieldRow(type=TEXT, to="name"),
    "hidden_size": _size(None, to="model.hidden_size", required=True),
    "head_num": _size(None, to="model.num_attention_heads", required=True),
    "kv_head_num": _size(None, to="model.num_key_value_heads", required=True),
    "head_size": _size(None, "model.head_dim"),
    "intermediate_size": _size(None, to="model.intermediate_size"),
    "layer_num": _size(None, to="model.num_hidden_layers", required=True),
    "vocab_size": _size(None, to="model.vocab_size", required=True),
    "orig_vocab_size": FieldRow(
        type=INT, reason="the size before padding; SimuMax overwrites it when it pads vocab_size", least=1
    ),
    "use_swiglu": _flag(False, "", "model.hidden_act"),
    "expert_num": _size(1, "model.num_experts"),
    "topk": _size(None, "model.num_experts_per_tok"),
    "attention_type": FieldRow(type=TEXT, default="mha", computed=("model.kv_lora_rank",)),
    "moe_ffn_hidden_size": _size(None, "model.moe_intermediate_size"),
    "moe_shared_expert_intermediate_size": _size(None, "model.shared_expert_intermediate_size"),
    "v_head_dim": _size(None, "model.v_head_dim"),
    "qk_head_dim": _size(None, "model.qk_nope_head_dim"),
    "qk_pos_emb_head_dim": _size(None, "model.qk_rope_head_dim"),
    "q_lora_rank": _size(None, "model.q_lora_rank"),
    "kv_lora_rank": _size(None, "model.kv_lora_rank"),
    "dense_layers": FieldRow(type=INT, default=0, computed=("model.first_k_dense_replace",), least=0),
    "moe_pad_expert_input_to_capacity": _flag(True, "", "moe.pad_to_capacity"),
    "capacity": FieldRow(type=NUMBER, default=1, computed=("moe.capacity_factor",), least=0),
    "group_linear_mode": FieldRow(
        type=TEXT, default="parallel", computed=("moe.grouped_gemm",), choices=("parallel", "serial")
    ),
}

# Fields of the system file by path; `*` is one of its networks, operations or bandwidths.
SYSTEM: Final[Mapping[str, FieldRow]] = {
    "sys_name": FieldRow(type=TEXT, to="hardware.name"),
    "num_per_node": _size(8, to="hardware.node_devices"),
    "FC8": _flag(False, "hardware.full_mesh"),
    "accelerator": FieldRow(type=OBJECT, required=True),
    "networks": FieldRow(type=OBJECT, required=True),
    "accelerator.backend": FieldRow(type=TEXT, default="cuda", computed=("hardware.device",)),
    "accelerator.mem_gbs": FieldRow(type=NUMBER, to="hardware.memory_gib", least=0, required=True),
    "accelerator.mode": FieldRow(
        type=TEXT,
        default="roofline",
        reason="the estimate always takes the slower of computing and moving data",
        choices=("roofline", "only_compute"),
    ),
    "accelerator.op": FieldRow(type=OBJECT, required=True),
    "accelerator.bandwidth": FieldRow(type=OBJECT, required=True),
    "networks.intra_with_pcie": _flag(False, "", "hardware.shared_link_gbs"),
}
