"""Where this trainer implements each argument of Megatron-LM, or why not and whether that changes training.

The tables are total (a test compares them with the catalogue) and import nothing heavy.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping

from launcher.rehearse.core.arguments import Arguments, catalogue
from launcher.rehearse.core.options import Device
from launcher.rehearse.core.unsupported_args import GROUPS, UNSUPPORTED_ARGS, UnsupportedArg

# Where a supported argument goes. The names under "transformer", "optimizer" and "ddp" are fields of megatron-core's
# TransformerConfig, OptimizerConfig and DistributedDataParallelConfig of the same name, unless `settings` renames them.
SUPPORTED: Mapping[str, str] = {
    "transformer": """
        tensor_model_parallel_size pipeline_model_parallel_size sequence_parallel context_parallel_size
        expert_model_parallel_size expert_tensor_parallel_size fp16 bf16 num_layers mtp_num_layers
        mtp_loss_scaling_factor mtp_standalone account_for_embedding_in_pipeline_split
        account_for_loss_in_pipeline_split microbatch_group_size_per_vp_stage overlap_p2p_comm
        overlap_p2p_comm_warmup_flush hidden_size num_attention_heads softmax_type num_query_groups
        ffn_hidden_size kv_channels hidden_dropout attention_dropout fp32_residual_connection
        apply_residual_connection_post_layernorm layernorm_epsilon layernorm_zero_centered_gamma
        add_bias_linear add_qkv_bias glu_linear_offset activation_func_clamp_value rotary_interleaved
        normalization qk_layernorm qk_l2_norm attention_output_gate calculate_per_token_loss
        multi_latent_attention no_rope_freq window_size window_attn_skip_freq init_method_std
        embedding_init_method_std attention_softmax_in_fp32 recompute_granularity recompute_method
        recompute_num_layers recompute_modules distribute_saved_activations pipeline_model_parallel_layout
        moe_shared_expert_intermediate_size moe_shared_expert_gate moe_ffn_hidden_size moe_layer_freq
        moe_router_load_balancing_type moe_router_topk moe_router_num_groups moe_router_group_topk
        moe_router_pre_softmax moe_router_topk_scaling_factor moe_router_score_function moe_router_dtype
        moe_router_enable_expert_bias moe_router_bias_update_rate moe_router_force_load_balancing
        moe_aux_loss_coeff moe_z_loss_coeff moe_input_jitter_eps moe_expert_capacity_factor
        moe_pad_expert_input_to_capacity moe_token_drop_policy moe_layer_recompute moe_apply_probs_on_input
        moe_token_dispatcher_type q_lora_rank kv_lora_rank qk_head_dim qk_pos_emb_head_dim
        v_head_dim rope_type rotary_base rotary_percent rotary_scaling_factor mscale mscale_all_dim
        use_fused_weighted_squared_relu experimental_attention_variant dsa_indexer_n_heads
        dsa_indexer_head_dim dsa_indexer_topk dsa_indexer_loss_coeff dsa_indexer_use_sparse_loss""",
    "model": """
        num_experts swiglu squared_relu quick_geglu init_method_xavier_uniform group_query_attention
        decoder_first_pipeline_num_layers decoder_last_pipeline_num_layers
        num_layers_per_virtual_pipeline_stage num_virtual_stages_per_pipeline_rank max_position_embeddings
        position_embedding_type add_position_embedding use_rotary_position_embeddings
        rotary_seq_len_interpolation_factor use_rope_scaling rope_scaling_factor make_vocab_size_divisible_by
        vocab_size padded_vocab_size untie_embeddings_and_output_weights fp16_lm_cross_entropy
        encoder_num_layers recompute_activations transformer_impl""",
    "fp8": """
        fp8 fp8_recipe fp8_margin fp8_amax_history_len fp8_amax_compute_algo fp8_wgrad first_last_layers_bf16
        num_layers_at_start_in_bf16 num_layers_at_end_in_bf16""",
    "optimizer": """
        lr min_lr decoupled_lr decoupled_min_lr weight_decay apply_wd_to_qk_layernorm loss_scale
        initial_loss_scale min_loss_scale loss_scale_window hysteresis optimizer adam_beta1 adam_beta2
        adam_eps sgd_momentum clip_grad log_num_zeros_in_grad use_distributed_optimizer overlap_param_gather
        no_weight_decay_cond_type""",
    "ddp": """
        overlap_grad_reduce align_param_gather num_distributed_optimizer_instances ddp_num_buckets
        ddp_bucket_size ddp_average_in_collective ddp_pad_buckets_for_high_nccl_busbw grad_reduce_in_bf16
        accumulate_allreduce_grads_in_fp32 check_for_nan_in_loss_and_grad check_for_large_grads
        gradient_reduce_div_fusion""",
    "parallel": "use_tp_pp_dp_mapping distributed_timeout_minutes",
    "schedule": """
        lr_decay_style lr_wsd_decay_style lr_decay_iters lr_decay_samples lr_wsd_decay_iters
        lr_wsd_decay_samples lr_warmup_fraction lr_warmup_iters lr_warmup_samples lr_warmup_init
        start_weight_decay end_weight_decay weight_decay_incr_style override_opt_param_scheduler
        use_checkpoint_opt_param_scheduler train_iters train_samples micro_batch_size global_batch_size
        exit_interval exit_duration_in_mins seed""",
    "data": """
        data_path split seq_length encoder_seq_length eval_iters eval_interval train_data_path valid_data_path
        test_data_path data_cache_path mmap_bin_files eod_mask_loss reset_position_ids
        reset_attention_mask sft""",
    "checkpoint": """
        save save_interval save_retain_interval load ckpt_step finetune pretrained_checkpoint
        exit_on_missing_checkpoint no_save_optim no_save_rng no_load_optim no_load_rng dist_ckpt_strictness
        ckpt_fully_parallel_save ckpt_fully_parallel_load dist_ckpt_optim_fully_reshardable""",
    "logging": "log_interval tensorboard_dir tensorboard_log_interval",
}


@functools.cache
def supported() -> Mapping[str, str]:
    """Map each supported argument (dest) to the part of the trainer that implements it."""
    return {dest: part for part, names in SUPPORTED.items() for dest in names.split()}


@functools.cache
def unsupported() -> Mapping[str, UnsupportedArg]:
    """Map each argument (dest) that is not supported to its row."""
    rows = {dest: row for row in UNSUPPORTED_ARGS for dest in row.dests.split()}
    for argument in catalogue():
        group_row = GROUPS.get(argument.group or "")
        if group_row is not None and argument.dest not in rows and argument.dest not in supported():
            rows[argument.dest] = group_row
    return rows


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class IgnoredArg:
    """A given argument that this trainer does not honour."""

    flag: str
    value: object
    why: str
    changes_training: bool
    works: str

    def refusal(self) -> str:
        """Return why this argument is rejected, and what would work."""
        shown = "" if self.value is True or self.value is False else f" {self.value}"
        return f"{self.flag}{shown}: {self.why}; works: {self.works}"


def judge(arguments: Arguments, device: Device | None = None) -> tuple[IgnoredArg, ...]:
    """List the given arguments that are not supported and have an effect, in the order of the command line.

    Those of FP8 are supported only where `device` is cuda: Transformer Engine computes them, on no other device.
    """
    defaults = {row.dest: row.default for row in catalogue()}
    found = []
    for given in arguments.given:
        row = unsupported().get(given.dest)
        if supported().get(given.dest) == "fp8" and device != "cuda":
            row = _FP8
        condition = CONDITIONS.get(given.dest)
        if row is None and condition is not None:
            row = condition(given.value)
        if row is None or given.value == defaults[given.dest]:
            continue
        found.append(
            IgnoredArg(
                flag=given.flag, value=given.value, why=row.why, changes_training=row.changes_training, works=row.works
            )
        )
    return tuple(found)


def _only(values: tuple[object, ...], why: str, works: str) -> Callable[[object], UnsupportedArg | None]:
    """Build a condition that rejects a supported argument with a value outside `values`."""
    row = UnsupportedArg(dests="", why=why, changes_training=True, works=works)
    return lambda value: None if value in values else row


_FP8 = UnsupportedArg(
    dests="",
    why="fp8 needs Transformer Engine on a GPU",
    changes_training=True,
    works="--bf16 without fp8, or rehearse.device=cuda where both are",
)

_INFERENCE = UnsupportedArg(
    dests="",
    why="inference only: it trains with the layers that are installed",
    changes_training=False,
    works="transformer_engine or local",
)

_FLEX = UnsupportedArg(
    dests="",
    why="flex needs DeepEP's kernels; alltoall moves the same tokens",
    changes_training=False,
    works="alltoall",
)

_MOE_ACT = UnsupportedArg(
    dests="",
    why="moe_act is recomputed with grouped GEMM only; the other modules are recomputed",
    changes_training=False,
    works="without moe_act",
)

CONDITIONS: Mapping[str, Callable[[object], UnsupportedArg | None]] = {
    "optimizer": _only(("adam", "sgd"), "only adam and sgd are supported", "--optimizer adam"),
    "position_embedding_type": _only(
        ("learned_absolute", "rope", "none"),
        "this position embedding is not supported",
        "--position-embedding-type rope",
    ),
    "experimental_attention_variant": _only(
        ("dsa",), "linear attention (gated delta net) is not supported", "standard, latent or sparse (DSA) attention"
    ),
    "recompute_modules": lambda value: _MOE_ACT if isinstance(value, list) and "moe_act" in value else None,
    "transformer_impl": lambda value: None if value in ("local", "transformer_engine") else _INFERENCE,
    "moe_token_dispatcher_type": lambda value: _FLEX if value == "flex" else None,
}
