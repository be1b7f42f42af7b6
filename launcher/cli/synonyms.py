"""What people call things: everyday words, and names of Hugging Face's Trainer and PEFT, with the fields they mean.

Native arguments of the backends and keys of config.json are not repeated here: the catalogues, the mapping tables and
the names of fields have them.
"""

# Concept, in several spellings, and its fields (or verbs), the most likely first.
WORDS: dict[str, str] = {
    "resume continue restart_training": "checkpoint.load checkpoint.load_step checkpoint.finetune "
    "checkpoint.no_load_optim "
    "checkpoint.no_load_rng fault_tolerance.autoresume",
    "wandb weights_and_biases": "logging.wandb_project logging.wandb_name logging.wandb_dir",
    "tensorboard": "logging.tensorboard_dir logging.tensorboard_interval",
    "yarn long_context rope_scaling context_extension": "model.rope_scaling.type model.rope_scaling.factor "
    "model.rope_scaling.original_max_position_embeddings parallel.cp batch.seq_length",
    "128k 64k 32k sequence_length context_length max_length long_sequence": "batch.seq_length "
    "model.max_position_embeddings parallel.cp parallel.cp_algorithm model.rope_scaling.type",
    "context_parallel ring_attention ulysses": "parallel.cp parallel.cp_algorithm parallel.ulysses_degree "
    "parallel.cp_window",
    "dataset data own_data jsonl corpus": "data.paths data.format data.columns data.template data.validation_paths",
    "chat_template prompt system_prompt": "data.template data.system",
    "epochs": "schedule.epochs",
    "steps iterations": "schedule.train_iters",
    "learning_rate lr": "optimizer.lr optimizer.min_lr schedule.lr_decay_style schedule.lr_warmup_fraction",
    "scheduler cosine decay": "schedule.lr_decay_style schedule.lr_decay_iters optimizer.min_lr",
    "warmup warm_up": "schedule.lr_warmup_fraction schedule.lr_warmup_iters",
    "batch_size batch": "batch.global_batch_size batch.micro_batch_size",
    "gradient_accumulation accumulation": "batch.global_batch_size batch.micro_batch_size",
    "gradient_checkpointing activation_checkpointing recomputation": "recompute.granularity recompute.method "
    "recompute.num_layers recompute.modules",
    "out_of_memory oom memory": "recompute.granularity offload.optimizer parallel.distributed_optimizer "
    "batch.micro_batch_size parallel.tp parallel.pp",
    "offload cpu_offload": "offload.optimizer offload.optimizer_fraction offload.attention offload.modules",
    "zero deepspeed zero1 zero2 zero3": "parallel.zero_stage parallel.distributed_optimizer "
    "parallel.fsdp.implementation",
    "fsdp": "parallel.fsdp.implementation parallel.distributed_optimizer",
    "flash flash_attention flash_attn sdpa attention_implementation": "kernels.attention_backend",
    "tensor_parallel": "parallel.tp parallel.sequence_parallel",
    "pipeline_parallel": "parallel.pp parallel.vpp parallel.layout parallel.schedule",
    "interleaved virtual_pipeline": "parallel.vpp parallel.layout",
    "expert_parallel": "parallel.ep parallel.etp",
    "data_parallel ddp": "parallel.dp parallel.distributed_optimizer",
    "lora peft adapter": "lora.rank lora.alpha lora.dropout lora.target_modules lora.load lora.merge",
    "qlora quantization 4bit": "lora.quantization",
    "mixed_precision bf16 fp16 half": "precision.dtype",
    "fp8": "precision.fp8_format precision.fp8_recipe precision.fp8_param_gather",
    "fp4": "precision.fp4_format precision.fp4_recipe",
    "packing": "batch.packing batch.padding_free data.reset_attention_mask",
    "save checkpoint_interval": "checkpoint.save_interval checkpoint.save checkpoint.save_total_limit",
    "pretrained weights from_pretrained": "model.path model.hub_id model.pretrained checkpoint.load",
    "huggingface_checkpoint safetensors": "checkpoint.save_safetensors model.path",
    "evaluation validation": "evaluation.interval evaluation.iters data.validation_paths data.split",
    "early_stop stop_after": "schedule.exit_interval schedule.exit_minutes",
    "gradient_clipping clipping": "optimizer.clip_grad",
    "load_balancing auxiliary_loss aux_loss": "moe.load_balancing_type moe.aux_loss_coeff moe.bias_update_rate",
    "all_to_all dispatcher deepep": "moe.token_dispatcher_type moe.deepep moe.dispatch_overlap",
    "capacity token_dropping": "moe.capacity_factor moe.token_drop_policy moe.pad_to_capacity",
    "mtp multi_token_prediction": "model.num_nextn_predict_layers model.mtp_loss_scaling_factor",
    "slurm sbatch": "cluster.partition cluster.account cluster.time_limit cluster.sbatch_options",
    "kubernetes k8s pods": "cluster.kind cluster.container cluster.namespace cluster.volumes",
    "docker container image": "cluster.container cluster.container_mounts",
    "nodes gpus npus devices world_size": "cluster.nodes cluster.devices_per_node",
    "master_addr rendezvous": "cluster.master_addr cluster.master_port",
    "hang timeout watchdog": "fault_tolerance.hang_minutes fault_tolerance.timeout_minutes "
    "fault_tolerance.startup_minutes",
    "retry restarts elastic": "fault_tolerance.max_restarts fault_tolerance.restart_wait_seconds",
    "nan spike": "fault_tolerance.check_for_nan fault_tolerance.check_for_spiky_loss",
    "profiling nsys trace": "profiler.enabled profiler.start_step profiler.end_step profiler.path",
    "overlap communication": "overlap.grad_reduce overlap.param_gather overlap.tp_comm overlap.p2p",
    "reproducible determinism": "kernels.deterministic seed",
    "sliding_window_attention": "model.sliding_window",
    "rl reinforcement grpo ppo": "task.type task.reward_models task.beta",
    "preference dpo": "task.type task.beta task.loss_type task.reference_model",
}

# Names that are no native argument of a backend's newest version, or mean something else there.
ALIASES: dict[str, str] = {
    # transformers.TrainingArguments
    "model_name_or_path": "model.path model.hub_id",
    "per_device_train_batch_size": "batch.micro_batch_size",
    "gradient_accumulation_steps": "batch.global_batch_size batch.micro_batch_size",
    "num_train_epochs": "schedule.epochs",
    "max_steps": "schedule.train_iters",
    "warmup_ratio": "schedule.lr_warmup_fraction",
    "warmup_steps": "schedule.lr_warmup_iters",
    "lr_scheduler_type": "schedule.lr_decay_style",
    "max_grad_norm": "optimizer.clip_grad",
    "adam_epsilon": "optimizer.adam_eps",
    "optim": "optimizer.type",
    "report_to": "logging.wandb_project logging.tensorboard_dir",
    "run_name": "logging.wandb_name",
    "resume_from_checkpoint": "checkpoint.load",
    "dataloader_num_workers": "data.num_workers",
    "eval_strategy": "evaluation.interval",
    "save_strategy": "checkpoint.save_interval",
    "max_seq_length": "batch.seq_length",
    "max_seq_len": "batch.seq_length",
    "cutoff_len": "batch.seq_length",
    "attn_implementation": "kernels.attention_backend",
    "attn_impl": "kernels.attention_backend",
    "use_flash_attn": "kernels.attention_backend",
    "torch_dtype": "precision.dtype",
    # peft.LoraConfig
    "lora_r": "lora.rank",
    "r": "lora.rank",
    "use_rslora": "lora.rslora",
    # short forms in papers and scripts
    "gbs": "batch.global_batch_size",
    "mbs": "batch.micro_batch_size",
    "ga": "batch.global_batch_size",
    "seqlen": "batch.seq_length",
    "num_gpus": "cluster.nodes cluster.devices_per_node",
    "nproc_per_node": "cluster.devices_per_node",
}
