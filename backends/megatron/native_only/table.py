"""Effects of Megatron-SWIFT arguments without a canonical field, for porting a script to another backend.

Source: swift/megatron/arguments/*.py and swift/arguments/base_args/*.py @4.6.0; 3.12.6 for older names.
"""

from backends.megatron.families import is_multimodal
from backends.megatron.native_only.single import SINGLE
from launcher.job import Job
from launcher.mapping.native_only import (
    MEMORY,
    MODEL,
    NOTHING,
    OUTPUT,
    SPEED,
    START,
    TRAINING,
    NativeOnlyArg,
    group_row,
    row,
)

_SWIFT = "it is a part of ms-swift's own trainer"
_DATA = "it is a part of ms-swift's own data sets"
_TEMPLATE = "it is a part of ms-swift's own chat templates"
_NO_ROLLOUTS = "without rollouts there is no such training"
_RL = "no other stack trains by rollouts from inside"
_VISION = "other stacks train language models only"
_CORE = "it is a switch of megatron-core"
_HUB = "other stacks read local files"
_OTHER = "it is for another program of ms-swift than training"
_MODEL_FILES = "model.path=DIR"

_ROLLOUT, _DISTILLS = ("grpo",), ("gkd",)


def _online(job: Job) -> bool:
    return job.task.type in (*_ROLLOUT, *_DISTILLS)


def _prefers(job: Job) -> bool:
    return job.task.type not in ("pretrain", "sft")


_DATA_ROWS = (
    row(
        "load_from_cache_file",
        "takes preprocessed data from the cache of Hugging Face datasets",
        SPEED,
        _DATA,
        without="data is preprocessed as the other stack does it",
    ),
    row(
        "cached_dataset cached_val_dataset",
        "trains on data that ms-swift has tokenized before",
        MODEL,
        "only ms-swift reads these files",
        "data.paths=[PREFIX]",
        without="name the raw data, or tokenize it for the other stack",
    ),
    row(
        "columns custom_dataset_info external_plugins custom_register_path callbacks",
        "reads Python or JSON of yours into ms-swift",
        MODEL,
        _SWIFT,
        without="what these files add is not there",
    ),
    row(
        "group_by_length",
        "draws samples of one length together",
        TRAINING,
        _DATA,
        "batch.packing=true",
        without="the order of samples differs",
    ),
    row("train_dataloader_shuffle", "shuffles the training data", TRAINING, _DATA, "data.shuffle={value}"),
    row("val_dataset_shuffle", "shuffles the validation data", OUTPUT, _DATA, "evaluation.shuffle={value}"),
    row("data_seed", "seeds the order of data", TRAINING, _DATA, "data.seed={value}"),
    row(
        "interleave_prob stopping_strategy",
        "mixes data sets",
        TRAINING,
        _DATA,
        "data.paths=[0.7,PREFIX,0.3,PREFIX]",
        without="data sets follow each other",
        neutral=("first_exhausted",),
    ),
    row(
        "packing_length packing_strategy sequence_packing_scheduler packing_cache",
        "chooses how samples are packed",
        TRAINING,
        _DATA,
        "batch.seq_length={value}",
        without="packs hold other samples",
        read=lambda job: bool(job.batch.packing),
    ),
    row(
        "packing_num_proc dataloader_* download_mode remove_unused_columns disable_auto_column_mapping",
        "tunes the loading of data",
        SPEED,
        _DATA,
        "data.num_workers=4",
    ),
    row("strict", "stops at samples that cannot be read", OUTPUT, _DATA, without="such samples may be skipped"),
    row(
        "truncation_strategy",
        "chooses what happens to samples above the length",
        TRAINING,
        _DATA,
        without="long samples are treated as the other stack does",
        neutral=("delete",),
    ),
    row("decision_*", "prepares samples of decisions", TRAINING, _DATA),
    row(
        "new_special_tokens",
        "adds tokens to the vocabulary",
        MODEL,
        _SWIFT,
        "tokenizer.path=DIR",
        without="add them to tokenizer and weights before",
    ),
)

_TEMPLATES = (
    row(
        "loss_scale",
        "weighs the loss of parts of an answer",
        MODEL,
        _TEMPLATE,
        without="all tokens of the answers weigh the same",
        neutral=("default",),
        unrelated=True,
        no_field="It weighs parts of an answer in ms-swift; on other backends the name is the constant scale of fp16.",
        source="swift/arguments/base_args/template_args.py:140 @4.6.0",
    ),
    row("is_binary_loss_scale disable_ignore_empty_think", "tunes these weights", MODEL, _TEMPLATE),
    row(
        "add_non_thinking_prefix preserve_thinking response_prefix",
        "chooses how reasoning is included in samples",
        TRAINING,
        _TEMPLATE,
        "data.template=NAME",
        without="the template of the other backend sets it",
    ),
    row("agent_template", "writes calls of tools into samples", MODEL, _TEMPLATE, "data.template=NAME"),
    row(
        "template_backend use_chat_template norm_bbox",
        "chooses the chat template's code",
        TRAINING,
        _TEMPLATE,
        "data.template=NAME",
        neutral=("swift",),
    ),
    row("padding_side", "chooses the side of padding", NOTHING, _TEMPLATE),
    row("max_pixels", "limits the size of images", MODEL, _VISION, read=is_multimodal),
    row("sequence_parallel_size", "splits sequences in ms-swift's other trainers", NOTHING, _OTHER),
)

_TUNER = (
    row("freeze_llm", "keeps the language model's weights as they are", MODEL, _VISION),
    row(
        "freeze_vit freeze_aligner vit_* aligner_lr language_model_only",
        "chooses how the vision part is trained",
        MODEL,
        _VISION,
        without="only text is trained",
        read=is_multimodal,
    ),
    row(
        "freeze_parameters freeze_parameters_ratio freeze_parameters_regex trainable_parameters "
        "trainable_parameters_regex",
        "chooses which weights are trained",
        MODEL,
        _SWIFT,
        without="all weights are trained",
        neutral=(0, 0.0),
    ),
    row(
        "modules_to_save",
        "trains these modules beside the adapters",
        MODEL,
        _SWIFT,
        "lora.target_modules=[all-linear]",
    ),
    row(
        "target_regex",
        "chooses the layers with adapters by a pattern",
        MODEL,
        _SWIFT,
        "lora.target_modules=[all-linear]",
    ),
    row("lora_bias", "trains biases beside the adapters", MODEL, _SWIFT, neutral=("none",)),
    row("lora_dtype", "keeps adapters in this type", TRAINING, _SWIFT, without="adapters have the type of the weights"),
    row(
        "lora_modules adapters ref_adapters adapter_load ref_adapter_load mcore_ref_adapter",
        "starts from these adapters",
        MODEL,
        _SWIFT,
        "lora.load={value}",
    ),
    row("tuner_backend use_swift_lora", "chooses the library of adapters", NOTHING, _SWIFT),
    row("train_type", "chooses full training or adapters", MODEL, _SWIFT, "lora.rank=8", neutral=("full",)),
    row(
        "linear_decoupled_in_proj",
        "splits the input of linear attention in parts with adapters of their own",
        TRAINING,
        _SWIFT,
        without="one matrix holds them",
    ),
)

_LOSS = (
    row(
        "task_type num_labels problem_type",
        "trains a classifier or embeddings",
        MODEL,
        _SWIFT,
        without="the other stack trains to predict tokens",
        neutral=("causal_lm",),
    ),
    row("enable_dft_loss enable_channel_loss mrl_dims", "changes the loss of fine-tuning", MODEL, _SWIFT),
    row(
        "mtp_decoder_input_detach mtp_shared_weights",
        "changes the extra prediction layers",
        MODEL,
        _SWIFT,
        read=lambda job: bool(job.model.num_nextn_predict_layers),
    ),
)

_MODEL_ROWS = (
    row(
        "model_type architectures llm_architectures",
        "sets the family of the model, and with it the usual template",
        TRAINING,
        "it is ms-swift's own name",
        _MODEL_FILES,
        "model.hub_id=OWNER/NAME",
        without="the family is read from the model's config.json; name the template in data.template",
    ),
    row("model_revision", "takes a revision of a model in a hub", MODEL, _HUB, _MODEL_FILES),
    row("init_strategy initialize_embedding", "fills weights that the checkpoint lacks", MODEL, _SWIFT),
    row(
        "attn_impl experts_impl",
        "chooses kernels of the Hugging Face model",
        SPEED,
        _SWIFT,
        "kernels.attention_backend=flash",
    ),
    row(
        "device_map max_memory local_repo_path model_kwargs max_model_len",
        "is for Hugging Face models",
        NOTHING,
        _OTHER,
    ),
    row(
        "swiglu multi_latent_attention group_query_attention rotary_percent seq_length "
        "original_max_position_embeddings quick_geglu window_size window_attn_skip_freq "
        "mrope_interleaved layer_types",
        "shapes the model",
        MODEL,
        "ms-swift takes it from the model's config.json since 4.0",
        _MODEL_FILES,
    ),
    row(
        "num_layers_per_virtual_pipeline_stage engram_tokenizer_map csa_dense_mode",
        "shapes the model",
        MODEL,
        _CORE,
        _MODEL_FILES,
    ),
    row("mlp_padding_free", "drops padding in the feed-forward part", SPEED, _SWIFT),
    row("apply_dsa_kernel_fusion", "shapes DeepSeek's sparse attention", MODEL, _CORE, _MODEL_FILES),
    row(
        "bnb_* hqq_axis quant_bits quant_method",
        "trains adapters on quantised weights",
        MODEL,
        _SWIFT,
        "lora.quantization=nf4",
        read=lambda job: bool(job.lora.rank),
    ),
)

_OPTIMIZER = (
    row("optimizer", "chooses the optimizer", MODEL, _SWIFT, "optimizer.type=adam", neutral=("adam",)),
    row(
        "muon_*",
        "tunes the optimizer Muon",
        TRAINING,
        _CORE,
        "optimizer.type=adam",
        without="Muon's defaults of the other backend apply",
        read=lambda job: (
            "muon" in str(job.optimizer.type or "") or "muon" in str(job.backend.passthrough.get("optimizer", ""))
        ),
    ),
)

_RUN = (
    row(
        "optimizer_cuda_graph",
        no_field="It captures the optimizer's step; kernels.cuda_graph.* capture layers.",
        source="swift/megatron/arguments/megatron_args.py:523 @4.6.0",
    ),
    row(
        "batch_p2p_comm optimizer_cuda_graph moe_layer_recompute mhc_recompute_layer_num cp_partition_mode",
        "tunes when and how layers and collectives run",
        SPEED,
        _CORE,
    ),
    row(
        "local_rank nccl_comm_warmup enable_npu_model_patch skip_megatron_init distributed_timeout_minutes",
        "chooses how processes find each other",
        START,
        _SWIFT,
        "fault_tolerance.timeout_minutes={value}",
    ),
    row(
        "use_ray device_groups ray_exp_name",
        "starts processes by Ray",
        START,
        _RL,
        "cluster.executor=slurm",
    ),
    row(
        "ignore_args_error load_args load_data_args check_model add_version", "checks and names the run", OUTPUT, _SWIFT
    ),
    row("use_hf hub_token", "chooses and opens a hub", START, _HUB, _MODEL_FILES, unrelated=True),
)

_CHECKPOINT = (
    row(
        "bridge_backend mcore_adapter",
        "reads Hugging Face weights through ms-swift's bridge",
        START,
        _SWIFT,
        "checkpoint.load=DIR",
        without="convert the weights: launch convert hf-to-mcore",
    ),
    row(
        "save_missing_weights max_shard_size create_checkpoint_symlink save_strategy "
        "metric_for_best_model greater_is_better",
        "chooses how and when checkpoints are written",
        OUTPUT,
        _SWIFT,
        "checkpoint.save_interval=500",
    ),
    row("ckpt_dir", "starts from this checkpoint", MODEL, _SWIFT, "checkpoint.load={value}"),
    row(
        "report_to swanlab_* wandb_* no_log_learning_rate_to_tensorboard",
        "chooses where figures are logged",
        OUTPUT,
        _SWIFT,
        "logging.wandb_project=NAME",
        "logging.tensorboard_dir=DIR",
    ),
    group_row(("MegatronExportArguments",), "is for megatron export", NOTHING, _OTHER),
    row(
        "vit_gradient_checkpointing vit_gradient_checkpointing_kwargs gradient_checkpointing_kwargs",
        "computes activations of the vision part again",
        MEMORY,
        _VISION,
    ),
)

_REINFORCED = (
    row(
        "use_vllm vllm_* sleep_level offload_model offload_optimizer offload_bridge move_model_batches async_generate "
        "offload_teacher_model router_replay_mode",
        "runs the rollouts of online training",
        START,
        _RL,
        read=_online,
    ),
    row(
        "log_completions log_entropy log_rollout_offpolicy_metrics wandb_log_unique_prompts",
        "logs rollouts",
        OUTPUT,
        _RL,
    ),
    row(
        "max_completion_length stop_words structured_outputs_regex",
        "chooses how answers are drawn",
        MODEL,
        _RL,
        without=_NO_ROLLOUTS,
        read=_online,
        unrelated=True,
    ),
    row("num_beams stream logprobs top_logprobs", "is for inference", NOTHING, _OTHER, unrelated=True),
    row(
        "ref_load mcore_ref_model reference_free",
        "names the reference model",
        MODEL,
        _SWIFT,
        "task.reference_model={value}",
        read=_prefers,
    ),
    row(
        "center_rewards_coefficient f_divergence_type sft_alpha",
        "changes the preference loss",
        MODEL,
        _SWIFT,
        read=_prefers,
        neutral=("reverse_kl", 0, 0.0),
    ),
    group_row(
        ("RLHFMegatronArgumentsMixin",),
        "shapes online training (GRPO, GKD)",
        MODEL,
        _RL,
        without=_NO_ROLLOUTS,
        read=_online,
    ),
)

_GROUPS = (
    group_row(("DataArguments",), "changes how data is read", TRAINING, _DATA),
    group_row(("MegatronTunerMixin",), "changes what is trained", MODEL, _SWIFT),
    row(
        "recompute_granularity",
        "chooses what the backward pass computes again",
        MEMORY,
        _CORE,
        "recompute.granularity={value}",
        neutral=("none",),
    ),
    group_row(("MegatronArguments", "ExtraMegatronArguments"), "changes how megatron-core trains", TRAINING, _CORE),
    group_row(
        ("BaseArguments",),
        "changes how ms-swift runs",
        TRAINING,
        _SWIFT,
    ),
)

NATIVE_ONLY: tuple[NativeOnlyArg, ...] = (
    *SINGLE,
    *_DATA_ROWS,
    *_TEMPLATES,
    *_TUNER,
    *_LOSS,
    *_MODEL_ROWS,
    *_OPTIMIZER,
    *_RUN,
    *_CHECKPOINT,
    *_REINFORCED,
    *_GROUPS,
)


def rows() -> tuple[NativeOnlyArg, ...]:
    """Return the table."""
    return NATIVE_ONLY
