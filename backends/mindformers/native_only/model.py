"""MindFormers' keys below model.model_config without a canonical field: shapes, kernels and bookkeeping."""

from launcher.mapping.native_only import MODEL, NOTHING, OUTPUT, SPEED, TRAINING, NativeOnlyArg, row

_CONFIG = "it is a switch of MindFormers' model classes"
_BOOKS = "it is bookkeeping of configurations"
_PARALLEL = "the trainer fills it in from the sections beside"
_PREDICT = "it is for prediction"
_ASCEND = "it is an operator of Ascend's graph"
_FILES = "model.path=DIR"
_M = "model.model_config."


def below_model(names: str) -> str:
    """Return the names, each prefixed with model.model_config."""
    return " ".join(_M + name for name in names.split())


MODEL_ROWS: tuple[NativeOnlyArg, ...] = (
    row(
        below_model(
            "_* commit_message dataset_config force_download is_encoder_decoder "
            "is_sample_acceleration local_files_only mindformers_version monitor_config name_or_path "
            "pretrained_model_* proxies repo_id resume_download return_extra_loss return_unused_kwargs "
            "revision rl_config save_json subfolder token tokenizer_class trust_remote_code net_name "
            "model_type architectures auto_register"
        ),
        "names and finds files",
        NOTHING,
        _BOOKS,
        "model.path=DIR",
    ),
    row(below_model("type"), "names the class of the configuration", MODEL, "it is a class of MindFormers", _FILES),
    row(
        below_model(
            "block_size num_blocks is_dynamic mask_generate gmask_token_id use_cache "
            "return_hidden_states chunk_prefill use_past_shard parallel_decoding_params llm_backend "
            "quant_config quantization quantization_config pre_seq_len prefix_projection quantization_bit "
            "attn_all* attn_reduce_scatter ffn_all* ffn_reduce_scatter dispatch_global_max_bs use_alltoall "
            "add_mlp_fc1_bias_linear add_mlp_fc2_bias_linear sandwich_norm"
        ),
        "is for prediction",
        NOTHING,
        _PREDICT,
    ),
    row(
        below_model(
            "context_parallel_algo context_parallel_size data_parallel_size expert_model_parallel_size "
            "expert_tensor_parallel_size pipeline_model_parallel_size tensor_model_parallel_size sequence_parallel "
            "micro_batch_num seq_split_num gradient_aggregation_group ulysses_degree_in_cp vocab_emb_dp "
            "parallel_config "
            "parallel_optimizer npu_nums_per_device recompute select_* op_swap default_prefetch mp_comm_recompute "
            "parallel_optimizer_comm_recompute recompute_slice_activation moe_config ep_size offset layers_group"
        ),
        "sets the split inside the model",
        NOTHING,
        _PARALLEL,
    ),
    row(
        below_model(
            "finalize_model_grads_func grad_scale_func grad_sync_func param_sync_func "
            "num_microbatches_with_partial_activation_checkpoints pre_process post_process num_encoder_layers "
            "num_decoder_layers model_architecture init_method output_layer_init_method mask_func_type"
        ),
        "is filled in by the trainer",
        NOTHING,
        _PARALLEL,
    ),
    row(
        below_model(
            "input_layout input_sliced_sig compute_in_2d rmsnorm_compute_2d fused_rms_norm use_fused_mla "
            "use_fused_ops_permute moe_router_fusion bias_activation_fusion masked_softmax_fusion "
            "memory_efficient_layer_norm persist_layer_norm use_contiguous_weight_layout* "
            "use_interleaved_weight_layout_mlp use_rope_slice use_rearrange_rope mlp_concat mla_qkv_concat "
            "enable_high_performance comp_comm_parallel* group_wise_a2a "
            "disable_lazy_inline use_attention_mask attention_*_tokens rotary_cos_format "
            "use_rotary_position_ids dsa_index_share_* moe_enable_deepep use_allgather_dispatcher "
            "enable_expert_relocation expert_relocation_* enable_deredundency init_model_with_meta_device"
        ),
        "chooses kernels and layouts, not values",
        SPEED,
        _ASCEND,
    ),
    row(
        below_model("softmax_compute_type"),
        "computes attention's softmax in a narrow type",
        TRAINING,
        _CONFIG,
        given=("float16", "fp16", "bfloat16", "bf16"),
        holds={"precision.attention_softmax_in_fp32": True},
        becomes={"precision.attention_softmax_in_fp32": False},
        nearly="other backends then compute it in precision.dtype",
        source="mindformers/models/llama/llama_config.py:226 @1.6.0",
    ),
    row(
        below_model(
            "disable_bf16_reduced_precision_matmul softmax_compute_type residual_dtype fp16_lm_cross_entropy "
            "expert_dtype"
        ),
        "chooses the type of a part of the computation",
        TRAINING,
        _CONFIG,
        neutral=("float32", "fp32"),
    ),
    row(
        below_model(
            "callback_moe_droprate print_expert_load monitor_* track_max_attention_logit moe_per_layer_logging"
        ),
        "logs parts of the model",
        OUTPUT,
        _CONFIG,
    ),
    row(
        below_model("use_force_expert_balance"),
        "deals tokens evenly, for measurements",
        MODEL,
        "it is a measurement, not a training",
        "moe.force_load_balancing={value}",
    ),
    row(
        below_model("coeff router_aux_loss_coef moe_expert_capacity_factor output_router_logits"),
        "tunes the balancing loss",
        MODEL,
        _CONFIG,
        "moe.aux_loss_coeff={value}",
        neutral=(0.001, 0.1),
    ),
    row(
        below_model("moe_z_loss_coeff"),
        "weighs the router's z-loss",
        MODEL,
        "MindFormers reads past it",
        "moe.z_loss_coeff={value}",
        neutral=(0.0,),
    ),
    row(
        below_model(
            "moe_token_drop_policy moe_input_jitter_eps moe_pad_expert_input_to_capacity moe_apply_probs_on_input "
            "moe_init_method_std moe_router_load_balancing_type moe_router_pre_softmax topk_method "
            "mlp_only_layers decoder_sparse_step"
        ),
        "changes the experts",
        MODEL,
        _CONFIG,
        _FILES,
        neutral=("probs", False, "greedy", 1),
    ),
    row(
        below_model("activation_func gated_linear_unit"),
        "chooses the activation",
        MODEL,
        _CONFIG,
        "model.hidden_act=silu",
        _FILES,
    ),
    row(
        below_model("beta_fast"),
        "bounds fast rotations of YaRN",
        MODEL,
        _CONFIG,
        "model.rope_scaling.beta_fast={value}",
    ),
    row(
        below_model("beta_slow"),
        "bounds slow rotations of YaRN",
        MODEL,
        _CONFIG,
        "model.rope_scaling.beta_slow={value}",
    ),
    row(below_model("mscale"), "scales YaRN's attention", MODEL, _CONFIG, "model.rope_scaling.mscale={value}"),
    row(
        below_model("mscale_all_dim"),
        "scales YaRN's attention",
        MODEL,
        _CONFIG,
        "model.rope_scaling.mscale_all_dim={value}",
    ),
    row(
        below_model(
            "scaling_factor.* rope_ratio rotary_pct rotary_percent rotary_emb_base "
            "rotary_seq_len_interpolation_factor partial_rotary_factor use_rope_scaling nope_layer_interval"
        ),
        "changes the rotary positions",
        MODEL,
        _CONFIG,
        "model.rope_theta=1000000",
        _FILES,
        neutral=(None, 1, 1.0),
    ),
    row(
        below_model("emb_dropout_prob"),
        "drops parts of embeddings",
        MODEL,
        _CONFIG,
        "model.hidden_dropout={value}",
        neutral=(0, 0.0),
    ),
    row(
        below_model("pretrain_seqlen training_seqlen"),
        "sets the longest sequence",
        MODEL,
        _CONFIG,
        "model.max_position_embeddings={value}",
    ),
    row(
        below_model("eos_token_id bos_token_id pad_token_id use_pad_tokens"),
        "names special tokens",
        TRAINING,
        _CONFIG,
        "tokenizer.path=DIR",
    ),
    row(
        below_model("eod_reset use_eod_reset"),
        "separates packed documents",
        MODEL,
        _CONFIG,
        "data.reset_attention_mask=true",
    ),
    row(
        below_model(
            "sliding_window window_size window_attn_skip_freq use_sliding_window max_window_layers layer_types"
        ),
        "limits attention to a window",
        MODEL,
        _CONFIG,
        "model.sliding_window=4096",
        _FILES,
    ),
    row(
        below_model("param_init_std_rules"),
        "chooses the initial weights",
        TRAINING,
        _CONFIG,
        "model.initializer_range=0.02",
        read=lambda job: job.model.pretrained is not True,
    ),
    row(
        below_model("calculate_per_token_loss"),
        "divides the loss by the tokens of all devices",
        TRAINING,
        _CONFIG,
        "precision.calculate_per_token_loss={value}",
    ),
    row(
        below_model("untie_embeddings_and_output_weights"),
        "unties embedding and output layer",
        MODEL,
        _CONFIG,
        "model.tie_word_embeddings=false",
    ),
    row(below_model("multi_latent_attention"), "switches MLA on", MODEL, _CONFIG, "model.kv_lora_rank=512"),
    row(below_model("rotary_dtype"), "computes rotary embeddings in this type", TRAINING, _CONFIG),
    row(
        below_model("embedding_init_type"),
        "sets the precision of embeddings",
        TRAINING,
        _CONFIG,
        source="mindformers 1.7.0 models/llama/llama.py",
    ),
    row(below_model("*"), "shapes the model", MODEL, _CONFIG, _FILES),
)
