"""Arguments of Megatron-LM that the embedded trainer does not support, as data; read by `supported`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class UnsupportedArg:
    """Arguments (dests, separated by blanks) that are not supported for the same reason."""

    dests: str
    why: str
    changes_training: bool = False
    works: str = "leave it out"


_KERNEL = "kernel only: the same mathematics runs here without it"
_MEMORY = "where tensors are kept, not what is computed"
_SPEED = "overlap or speed on a device only"
_LOG = "logging and diagnosis of Megatron-LM's own loop"
_DATA = "how Megatron-LM's loader works; this trainer has its own"

UNSUPPORTED_ARGS: tuple[UnsupportedArg, ...] = (
    UnsupportedArg(
        dests="""
        attention_backend use_flash_attn masked_softmax_fusion bias_gelu_fusion
        bias_swiglu_fusion bias_dropout_fusion apply_rope_fusion no_persist_layer_norm
        gradient_accumulation_fusion disable_jit_fuser cross_entropy_loss_fusion cross_entropy_fusion_impl
        moe_grouped_gemm moe_use_legacy_grouped_gemm moe_permute_fusion moe_router_fusion moe_enable_deepep
        moe_flex_dispatcher_backend moe_deepep_num_sms moe_hybridep_num_sms use_te_activation_func
        use_kitchen_attention kitchen_attention_backend disable_bf16_reduced_precision_matmul
        apply_query_key_layer_scaling batch_invariant_mode deterministic_mode cp_comm_type
        hierarchical_context_parallel_sizes enable_cuda_graph external_cuda_graph cuda_graph_impl
        cuda_graph_warmup_steps cuda_graph_scope symmetric_ar_type te_rng_tracker inference_rng_tracker
        clone_scatter_output_in_embedding deprecated_use_mcore_models enable_experimental
        moe_pad_experts_for_cuda_graph_inference moe_router_padding_for_quantization
        moe_router_padding_for_fp8 cache_mla_latents reuse_grad_buf_for_mxfp8_param_ag
        use_mamba_mem_eff_path""",
        why=_KERNEL,
    ),
    UnsupportedArg(
        dests="""
        async_tensor_model_parallel_allreduce tp_comm_overlap tp_comm_overlap_cfg tp_comm_bulk_wgrad
        tp_comm_bulk_dgrad tp_comm_overlap_ag tp_comm_overlap_rs tp_comm_overlap_rs_dgrad tp_comm_split_ag
        tp_comm_split_rs tp_comm_bootstrap_backend overlap_moe_expert_parallel_comm
        moe_shared_expert_overlap delay_wgrad_compute ep_overlap_early_attn_memory_release
        use_ring_exchange_p2p defer_embedding_wgrad_compute wgrad_deferral_limit
        overlap_param_gather_with_optimizer_step align_grad_reduce scatter_gather_tensors_in_pipeline
        nccl_ub disable_symmetric_registration fsdp_manual_registration use_sharp sharp_enabled_group
        create_all_gather_group fsdp_double_buffer suggested_communication_unit_size
        nccl_communicator_config_path pipeline_model_parallel_comm_backend high_priority_stream_groups
        distributed_backend local_rank lazy_mpu_init distributed_timeout_seconds_after_init
        enable_gloo_process_groups ddp_reduce_scatter_with_fp32_accumulation manual_gc manual_gc_interval
        manual_gc_eval train_sync_interval empty_unused_memory_level""",
        why=_SPEED,
    ),
    UnsupportedArg(
        dests="""
        cpu_offloading_num_layers fine_grained_activation_offloading offload_modules
        min_offloaded_tensor_size optimizer_cpu_offload optimizer_offload_fraction
        use_torch_optimizer_for_cpu_offload overlap_cpu_optimizer_d2h_h2d pin_cpu_grads pin_cpu_params
        use_precision_aware_optimizer init_model_with_meta_device use_cpu_initialization
        keep_fp8_transpose_cache""",
        why=_MEMORY,
    ),
    UnsupportedArg(
        dests="""
        use_megatron_fsdp use_torch_fsdp2 torch_fsdp2_reshard_after_forward data_parallel_sharding_strategy
        outer_dp_sharding_strategy enable_full_sharding_in_hsdp""",
        why="FSDP shards the same data parallel training; DDP with or without the distributed optimizer runs here",
    ),
    UnsupportedArg(
        dests="perform_initialization", why="weights are always initialised here, the same at every layout, or loaded"
    ),
    UnsupportedArg(
        dests="moe_per_layer_logging log_max_attention_logit config_logger_dir test_mode barrier_with_L1_time "
        "exit_signal exit_signal_handler exit_signal_handler_for_dataloader "
        "check_weight_hash_across_dp_replicas_interval dump_param_to_param_group_map",
        why=_LOG,
    ),
    UnsupportedArg(
        dests="main_grads_dtype main_params_dtype exp_avg_dtype exp_avg_sq_dtype",
        why="optimizer states in another precision need Transformer Engine's FusedAdam",
        changes_training=True,
        works="fp32",
    ),
    UnsupportedArg(
        dests="""
        fp8_quantizer_factory fp8_interval fp8_param_gather fp4 fp4_recipe fp4_param fp4_quantizer_factory
        te_precision_config_file""",
        why="weights in fp8, fp4 and recipes of one's own are not supported",
        changes_training=True,
        works="--bf16, or fp8 with weights in bf16 (rehearse.device=cuda)",
    ),
    UnsupportedArg(
        dests="moe_latent_size", why="latent experts need Transformer Engine on a GPU", changes_training=True
    ),
    UnsupportedArg(
        dests="qk_clip qk_clip_alpha qk_clip_threshold",
        why="clipping of query-key products needs Transformer Engine 2.9",
        changes_training=True,
    ),
    UnsupportedArg(
        dests="""
        linear_conv_kernel_dim linear_key_head_dim linear_value_head_dim linear_num_key_heads
        linear_num_value_heads linear_attention_freq""",
        why="linear attention (gated delta net) is not supported",
        changes_training=True,
        works="standard, latent or sparse (DSA) attention",
    ),
    UnsupportedArg(
        dests="""
        is_hybrid_model mamba_state_dim mamba_head_dim mamba_num_groups mamba_num_heads
        hybrid_attention_ratio hybrid_mlp_ratio hybrid_override_pattern spec
        heterogeneous_layers_config_path heterogeneous_layers_config_encoded_json use_legacy_models yaml_cfg
        openai_gelu decoder_num_layers relative_attention_num_buckets relative_attention_max_distance
        mrope_section decoder_seq_length moe_use_upcycling moe_upcycling_granularity hybrid_context_parallel
        max_seqlen_per_dp_cp_rank onnx_safe""",
        why="another model family or model code than megatron-core's GPTModel with one layer plan",
        changes_training=True,
        works="a GPT model (dense, MoE, MLA, MTP)",
    ),
    UnsupportedArg(
        dests="muon_momentum muon_split_qkv muon_use_nesterov muon_scale_mode muon_fp32_matmul_prec muon_num_ns_steps "
        "muon_tp_mode muon_extra_scale_factor",
        why="the Muon optimizer is not supported; it has no effect with adam and sgd",
    ),
    UnsupportedArg(
        dests="rampup_batch_size decrease_batch_size_if_needed phase_transition_iterations",
        why="the batch size is constant here",
        changes_training=True,
        works="--global-batch-size alone",
    ),
    UnsupportedArg(
        dests="iterations_to_skip result_rejected_tracker_filename moe_enable_routing_replay data_parallel_random_init "
        "moe_extended_tp skip_train perform_rl_step",
        why="this affects training and is not supported",
        changes_training=True,
    ),
    UnsupportedArg(
        dests="fim_data fim_rate fim_spm_rate fim_split_sample fim_fragment_rate fim_no_prefix",
        why="fill-in-the-middle is not supported",
        changes_training=True,
    ),
    UnsupportedArg(
        dests="""
        mock_data data_args_path per_split_data_args_path per_dataset_sequences_path dataloader_type
        dataloader_fast_cache_load dataloader_defer_npy_index_mmap num_workers
        create_attention_mask_in_dataloader num_dataset_builder_threads object_storage_cache_path
        mid_level_dataset_surplus allow_ambiguous_pad_tokens full_validation multiple_validation_sets
        sample_rate mask_prob short_seq_prob fim_prefix_token fim_middle_token fim_suffix_token
        fim_pad_token fim_eod_token sft_tokenizer_prompt_format""",
        why=_DATA,
    ),
    UnsupportedArg(
        dests="load_main_params_from_ckpt use_checkpoint_args use_mp_args_from_checkpoint_args auto_detect_ckpt_format "
        "use_tokenizer_model_from_checkpoint_args",
        why="the checkpoint's arguments are not read; those of the command line are used",
    ),
    UnsupportedArg(dests="async_save use_persistent_ckpt_worker", why="checkpoints are written before the next step"),
    UnsupportedArg(
        dests="batch_size checkpoint_activations model_parallel_size warmup",
        why="Megatron-LM removed this argument",
        changes_training=True,
        works="--micro-batch-size, --recompute-granularity, --tensor-model-parallel-size, --lr-warmup-fraction",
    ),
    UnsupportedArg(dests="fake_process_group", why="the option fake_world decides this"),
)

GROUPS: Mapping[str, UnsupportedArg] = {
    "tokenizer": UnsupportedArg(dests="", why="the tokenizer of the rehearsal's data is used"),
    "checkpointing": UnsupportedArg(dests="", why="checkpoints are always torch_dist, complete and fully reshardable"),
    "logging": UnsupportedArg(dests="", why=_LOG),
    "profiling": UnsupportedArg(dests="", why=_LOG),
    "rl": UnsupportedArg(dests="", why="reinforcement learning is not supported; no effect without --perform-rl-step"),
    "autoresume": UnsupportedArg(dests="", why="a service of one cluster"),
    "biencoder": UnsupportedArg(dests="", why="for retrieval models; no effect on GPT"),
    "vision": UnsupportedArg(dests="", why="for vision models; no effect on GPT"),
    "straggler": UnsupportedArg(dests="", why=_LOG),
    "workload inspector": UnsupportedArg(dests="", why=_LOG),
    "inference": UnsupportedArg(dests="", why="inference only"),
    "one logger": UnsupportedArg(dests="", why=_LOG),
    "In-process restart": UnsupportedArg(dests="", why="fault tolerance of a cluster"),
    "ft_package": UnsupportedArg(dests="", why="fault tolerance of a cluster"),
    "rerun engine": UnsupportedArg(dests="", why="fault tolerance of a cluster"),
    "msc": UnsupportedArg(dests="", why="storage client only"),
    "network size": UnsupportedArg(dests="", why="for other models than GPT"),
    "transformer configuration": UnsupportedArg(dests="", why="inference only"),
}
