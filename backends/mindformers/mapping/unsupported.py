"""Canonical fields that MindFormers cannot express, with reasons."""

from collections.abc import Callable, Mapping

from backends.megatron_lm.mapping.attention_variants import gemma_gaps, llama4_gaps
from backends.megatron_lm.mapping.optimizer import NO_QK_CLIPPING
from backends.megatron_lm.mapping.unsupported import WITHOUT_MEGATRON_LOOP
from backends.mindformers.mapping.attention_variants import BEFORE_2_1 as BEFORE_2_1_VARIANTS
from backends.mindformers.mapping.loader import data_format
from backends.mindformers.mapping.support import is_legacy
from launcher.job import Job, field_paths
from launcher.job.task import PREFERENCE_OPTIONS
from launcher.mapping.rows import Gap, warning

_NO_EVALUATION = "training does not evaluate: MindFormers needs a whole eval_dataset for that"
_TOKENIZER = "it loads Hugging Face tokenizers"
_GRAPH = "the graph compiler places it; it has no key of its own"
_NO_FP8 = "Ascend's static graph trains in bf16, fp16 or fp32"
_NO_SWITCH = "it has no such switch; training is unaffected"
_MONITORS = "its monitors log other figures"
_CONSTANT_DECAY = "its weight decay is constant"
_ONE_RATE = "all layers share one learning rate"
_HCCL = "collectives are HCCL's"
_FSDP = "it shards optimizer states and gradients, not weights"
_COMPILED = "the graph compiler schedules communication; it has no key of its own"
_ONE_KIND = "its checkpoints are of one kind, of which the newest stay"
_NO_LAYERS = "its training classes have no such layers"
_NOT_READ = "its experts read past it (training_graph/transformer/moe)"


def _is_modern(job: Job) -> bool:
    return not is_legacy(job)


_ALPACA = "its Alpaca handler has one prompt text of its own"
# `launch tokenize` writes the chats.
_TOKENIZED = ("data.format=tokenized",)


def _writes_chats(job: Job) -> bool:
    """Return whether training itself writes chats as text: not from token numbers."""
    return data_format(job) not in ("tokenized", "megatron", "mindrecord")


def _evaluates(matters: Callable[[Job], bool]) -> Gap:
    return Gap(why=_NO_EVALUATION, severity="warning", matters=matters)


def _preference(name: str) -> Gap:
    # With a preference task, task.type is the error; with other tasks they have no effect (SENSE-TASK).
    why = f"{name} belongs to preference training, which MindFormers does not have"
    return Gap(why=why, works=("task.type=sft",), matters=lambda job: False)


_TASK = {f"task.{name}": _preference(name) for name in PREFERENCE_OPTIONS}

_LORA = {
    "lora.rslora": Gap(why="its LoRA scales by alpha / rank only (pet/pet_config.py)", neutral=(False,)),
    "lora.merge": Gap(why="it writes adapters inside its checkpoints only", neutral=(False,), severity="warning"),
    "lora.quantization": Gap(why="it has no quantised base weights"),
    "lora.load": Gap(
        why="adapters are loaded as part of a checkpoint: copy the file that `launch convert hf-to-mcore --adapter` "
        "writes beside the weights' files",
        works=("checkpoint.load=DIR",),
    ),
}

_MODEL = {
    "model.attention_output_bias": Gap(
        why="the output projection of attention has a bias if the MLP has (add_bias_linear)",
        works=("model.attention_output_bias=null",),
        matters=lambda job: job.model.has_attention_output_bias != job.model.linear_bias,
    ),
    "model.qk_norm_type": Gap(
        why="query and key heads are normalised one by one",
        neutral=("per_head",),
        works=("model.qk_norm_type=null",),
        matters=lambda job: job.model.qk_layernorm,
    ),
    "model.mlp_only_layers": Gap(
        why="its Qwen3-MoE class makes every layer an MoE layer (modeling_qwen3_moe_train.py:49 @2.1.0)",
        works=("model.mlp_only_layers=[]",),
        matters=lambda job: job.model.is_moe,
    ),
    "model.partial_rotary_factor": Gap(why="its training classes rotate the whole head (gpt_model.py)", neutral=(1.0,)),
    **{
        f"model.rope_scaling.{name}_freq_factor": Gap(
            why="it has no Llama-3 stretching of positions in training",
            works=("model.rope_scaling.type=null",),
            matters=lambda job: job.model.rope_scaling.type == "llama3",
        )
        for name in ("low", "high")
    },
    "model.norm_zero_centered": Gap(why="its norms multiply by the weight itself", neutral=(False,)),
    "model.init_per_replica": Gap(why="replicas start alike", neutral=(False,)),
    "model.full_attention_interval": Gap(why="it has no linear attention", neutral=(1,)),
    "model.attention_output_gate": Gap(why=_NO_LAYERS, neutral=(False,)),
    "model.softmax_type": Gap(why="its softmax has no sink", neutral=("vanilla",)),
    "model.qk_l2_norm": Gap(why=_NO_LAYERS, neutral=(False,)),
    "model.mrope_section": Gap(why="its training classes use rotary positions of text"),
    "model.glu_linear_offset": Gap(why=_NO_LAYERS, neutral=(0.0,)),
    "model.use_legacy_models": Gap(why="its own older classes are model.legacy", neutral=(False,)),
    "model.mamba": Gap(why="it has no Mamba layers", neutral=(False,)),
    "model.hybrid_attention_ratio": Gap(why="it has no Mamba layers", neutral=(0.0,)),
    "model.hybrid_mlp_ratio": Gap(why="it has no Mamba layers", neutral=(0.0,)),
    "model.hybrid_override_pattern": Gap(why="it has no Mamba layers"),
    "model.is_hybrid_model": Gap(why="it has no Mamba layers", neutral=(False,)),
    "model.heterogeneous_layers_config_path": Gap(why="all its layers have one shape"),
    "model.heterogeneous_layers_config_encoded_json": Gap(why="all its layers have one shape"),
    "model.init_method_xavier_uniform": Gap(why="first weights are drawn normally", neutral=(False,)),
    "model.perform_initialization": Gap(
        why="first weights are always drawn, and replaced by those that are loaded", neutral=(True,), severity="warning"
    ),
}

_TRAINING = {
    "batch.padding_free": Gap(
        why="samples are padded, or packed with batch.packing", neutral=(False,), works=("batch.packing=true",)
    ),
    "batch.variable_seq_lengths": warning("a static graph has one length", False),
    "batch.rampup_batch_size": Gap(why="a static graph has one batch size", works=("batch.rampup_batch_size=[]",)),
    "schedule.skip_iterations": Gap(
        why="data_skip_steps leaves out the first steps only", works=("schedule.skip_iterations=[]",)
    ),
    "schedule.exit_interval": Gap(why="training runs to its end", works=("schedule.exit_interval=null",)),
    "schedule.exit_minutes": Gap(why="training runs to its end", works=("schedule.exit_minutes=null",)),
    "schedule.skip_train": Gap(why="run_mindformer.py trains", neutral=(False,), works=("schedule.skip_train=false",)),
}

_PRECISION = {
    "precision.fp8_format": Gap(why=_NO_FP8),
    "precision.fp8_recipe": Gap(why=_NO_FP8),
    "precision.fp8_param_gather": Gap(why=_NO_FP8, neutral=(False,)),
    "precision.grad_reduce_in_fp32": Gap(
        why="weights are fp32 (params_dtype), so gradients are too",
        neutral=(True,),
        works=("precision.grad_reduce_in_fp32=true",),
    ),
    "optimizer.sgd_momentum": Gap(why="the optimizer is AdamW"),
    "optimizer.precision_aware": Gap(why="optimizer states are fp32 (core/optim/adamw.py:180)", neutral=(False,)),
    "optimizer.main_grads_dtype": Gap(why="main gradients are fp32", neutral=("fp32",)),
    "optimizer.exp_avg_dtype": Gap(why="optimizer states are fp32 (core/optim/adamw.py:180)", neutral=("fp32",)),
    "optimizer.exp_avg_sq_dtype": Gap(why="optimizer states are fp32 (core/optim/adamw.py:180)", neutral=("fp32",)),
    "optimizer.weight_decay_style": Gap(why=_CONSTANT_DECAY, neutral=("constant",)),
    "optimizer.start_weight_decay": Gap(why=_CONSTANT_DECAY),
    "optimizer.end_weight_decay": Gap(why=_CONSTANT_DECAY),
    "optimizer.decay_qk_layernorm": Gap(why="norms have no weight decay", neutral=(False,)),
    "optimizer.decoupled_lr": Gap(why=_ONE_RATE),
    "optimizer.decoupled_min_lr": Gap(why=_ONE_RATE),
    "precision.fp8_amax_history_len": Gap(why=_NO_FP8),
    "precision.fp8_amax_compute_algo": Gap(why=_NO_FP8),
    "precision.fp8_margin": Gap(why=_NO_FP8, neutral=(0,)),
    "precision.fp8_wgrad": Gap(why=_NO_FP8, neutral=(True,)),
    "precision.first_last_layers_bf16": Gap(why=_NO_FP8, neutral=(False,)),
    "precision.fp16_lm_cross_entropy": Gap(why="the loss is computed in fp32", neutral=(False,)),
    "precision.min_loss_scale": warning("its dynamic loss scale falls to 1", 1.0),
    "precision.loss_scale_hysteresis": warning("its dynamic loss scale falls at the first overflow", 1),
    "precision.fp4_format": Gap(why=_NO_FP8),
}

_KERNELS = {
    "kernels.transformer_impl": warning("it has one layer library", "local"),
    "kernels.masked_softmax_fusion": warning("flash attention has its own softmax", False),
    "kernels.gradient_accumulation_fusion": warning(_GRAPH, False),
    "kernels.cross_entropy_fusion": warning("it has no such switch", False),
    "kernels.cross_entropy_fusion_impl": warning("it has no such switch"),
    "kernels.cuda_graph.impl": warning("the whole step is a graph (graph.mode)", "none"),
    "kernels.use_fused_mhc": warning("its graph has no hyper-connections", False),
}

_PARALLEL = {
    "parallel.cp_window": warning("its ring attention has one ring"),
    "parallel.cp_mask_type": Gap(why="masks are causal", neutral=("causal",), works=("parallel.cp_mask_type=causal",)),
    "parallel.microbatch_group_size": warning("MindSpore's 1f1b takes one micro-batch per chunk and stage in a row"),
    "parallel.tp_2d_x": Gap(why="its mcore graph has no 2-D tensor parallelism", neutral=(1,)),
    "parallel.tp_2d_y": Gap(why="its mcore graph has no 2-D tensor parallelism", neutral=(1,)),
    "overlap.grad_reduce": warning(_GRAPH, True),
    "overlap.param_gather": warning(_GRAPH, True),
    "overlap.tp_comm": warning(_GRAPH),
    "overlap.p2p": warning(_GRAPH),
    "parallel.communication.backend": warning(_HCCL, "nccl"),
    "parallel.communication.pipeline_backend": warning(_HCCL, "nccl"),
    "parallel.communication.nccl_config": warning(_HCCL),
    "parallel.communication.ring_exchange_p2p": warning(_HCCL, False),
    "parallel.fsdp.implementation": warning(_FSDP, works=("parallel.zero_stage=2",)),
    "parallel.fsdp.communication_unit_size": warning(_FSDP),
    "parallel.fsdp.init_model_with_meta_device": warning(_FSDP, False),
    "overlap.gradient_reduce_div_fusion": warning(_COMPILED, True),
    "overlap.pad_buckets": warning(_COMPILED, False),
    "overlap.align_grad_reduce": warning(_COMPILED, True),
    "overlap.align_param_gather": warning(_COMPILED, True),
    "overlap.tp_allreduce": warning(_COMPILED, True),
    "overlap.param_gather_with_optimizer_step": warning(_NO_SWITCH, False),
    "overlap.grad_bucket_size": warning(_NO_SWITCH),
    "overlap.grad_buckets": warning(_NO_SWITCH),
    "overlap.average_in_collective": warning(_NO_SWITCH, False),
    "overlap.embedding_wgrad": warning(_NO_SWITCH, False),
    "overlap.p2p_warmup_flush": warning(_NO_SWITCH, False),
    "parallel.dw_detach": warning("its DualPipeV always does so", True),
    "parallel.optimizer_instances": warning("use parallel.optimizer_shard_size", 1),
    "parallel.dp_outermost": warning(
        "its ranks are numbered data, pipeline, tensor parallel as MindSpore has it", False
    ),
}

_MEMORY = {
    "recompute.in_bubble": warning("it does not recompute in pipeline bubbles", False),
    "recompute.in_advance": warning("it recomputes in the backward pass of the layer", False),
    "offload.modules": warning("it swaps attention (offload.attention) or whole layers (offload.activation_layers)"),
    "offload.optimizer_fraction": warning("optimizer.swap is all or nothing", 0.0, 1.0),
    "offload.optimizer_times": warning("optimizer.swap has no pieces"),
}

_IGNORED = "its mcore router and experts read past it (training_graph/transformer/moe), so it would change nothing"
_MOE = {
    "moe.z_loss_coeff": Gap(why=_IGNORED, neutral=(0.0,)),
    "moe.pad_to_capacity": Gap(why=_IGNORED, neutral=(False,)),
    "moe.token_drop_policy": Gap(why=_IGNORED + ": no token is dropped"),
    "moe.input_jitter_eps": Gap(why=_IGNORED, neutral=(0.0,)),
    "moe.dispatch_overlap": warning(_GRAPH, False),
    "moe.batch_overlap": warning("it does not run two micro-batches at once", False),
    "moe.deepep": warning("Ascend has its own all-to-all", False),
    "moe.tp_extend_ep": warning("experts are always spread over tensor-parallel ranks too", True),
    "model.apply_probs_on_input": Gap(why=_NOT_READ, neutral=(False,)),
    "moe.use_upcycling": Gap(why="weights come from a checkpoint of experts", neutral=(False,)),
    "moe.use_legacy_grouped_gemm": warning("it has one kernel for experts", False),
}

_DATA = {
    "data.validation_paths": _evaluates(lambda job: not (is_legacy(job) and job.evaluation.iters == 0)),
    "data.validation_ratio": warning(_NO_EVALUATION, 0.0),
    **{
        f"evaluation.{name}": _evaluates(lambda job: job.evaluation.iters != 0)
        for name in ("interval", "epochs", "shuffle", "drop_last", "columns")
    },
    "evaluation.iters": warning(_NO_EVALUATION, 0),
    "data.num_preprocess": warning("it tokenizes in one process"),
    "data.streaming": Gap(
        why="streaming needs a size and a state directory (hf_dataloader.py)",
        neutral=(False,),
        works=("data.streaming=false",),
    ),
    "data.lazy_tokenize": warning("it tokenizes before training", False),
    "data.template": Gap(
        why=_ALPACA,
        neutral=("alpaca",),
        works=_TOKENIZED,
        matters=_writes_chats,
    ),
    "data.system": Gap(why=_ALPACA, works=_TOKENIZED, matters=_writes_chats),
    **{
        path: Gap(why="it does not fill in self-cognition data: fill the names in", works=(f"{path}=null",))
        for path in ("data.self_cognition_author", "data.self_cognition_name")
    },
    "tokenizer.type": Gap(why=_TOKENIZER, neutral=("HuggingFaceTokenizer", "PretrainedFromHF")),
    "tokenizer.vocab_file": Gap(why=f"{_TOKENIZER}, from their directory (tokenizer.path)", matters=_is_modern),
    "tokenizer.merge_file": Gap(why=f"{_TOKENIZER}, from their directory (tokenizer.path)", matters=_is_modern),
    **{
        f"tokenizer.{name}_token": Gap(why=f"{_TOKENIZER}, which know it", severity="warning", matters=_is_modern)
        for name in ("bos", "eos", "pad", "unk")
    },
    "data.sharding": Gap(why="token files are shuffled as a whole", neutral=(False,), works=("data.sharding=false",)),
    "data.test_paths": warning("no test follows training"),
    "data.paths_file": Gap(why="it reads the list in the file itself", works=("data.paths=[…]",)),
    "data.order": Gap(why="token files are always shuffled by the seed", works=("data.order=null",)),
    "tokenizer.extra_ids": Gap(why=_TOKENIZER, neutral=(0,)),
    "tokenizer.tiktoken_pattern": Gap(why=_TOKENIZER),
    "tokenizer.tiktoken_special_tokens": Gap(why=_TOKENIZER),
    "tokenizer.tiktoken_num_special_tokens": Gap(why=_TOKENIZER),
    "data.enable_thinking": Gap(
        why="chats are tokenized before training",
        works=(*_TOKENIZED, "data.enable_thinking=null"),
        matters=_writes_chats,
    ),
}

_GENERATION = {
    path: Gap(
        why="its mcore training files have no setting for generated text",
        severity="warning",
        neutral=(False,),
        matters=_is_modern,
    )
    for path in field_paths()
    if path.startswith("generation.")
}

_FIGURES = ("params_norm", "zero_gradients", "timers", "memory", "perplexity")
_OUTPUTS = {
    "checkpoint.save_safetensors": warning("all its checkpoints are safetensors, of its own layout", True),
    "checkpoint.no_save_optim": warning("its checkpoints always hold the optimizer", False),
    "checkpoint.no_save_rng": warning("its checkpoints never hold random states", True),
    "checkpoint.optimizer_fully_reshardable": warning("auto_trans_ckpt reshards what it saved", True),
    "checkpoint.exit_on_missing": warning("a missing load_checkpoint always ends the run", True),
    "logging.wandb_project": warning("it logs to files and TensorBoard"),
    "logging.wandb_name": warning("it logs to files and TensorBoard"),
    "logging.swanlab_project": warning("it logs to files and TensorBoard"),
    "logging.swanlab_name": warning("it logs to files and TensorBoard"),
    **{f"logging.{name}": warning("its monitors log other figures", False) for name in _FIGURES},
    "logging.timer_level": warning("its monitors log other figures", 0),
    "checkpoint.strictness": warning("it loads what it can and reports the rest"),
    "logging.throughput": warning("MFLossMonitor always logs samples per second", True),
    "profiler.path": warning("profiles go below output_dir"),
    "checkpoint.save_retain_interval": warning(
        "it keeps the newest checkpoints", works=("checkpoint.save_total_limit=2",)
    ),
    "checkpoint.persistent_worker": warning("asynchronous saving is a thread", False),
    "checkpoint.save_pre_mcore_014": warning("its checkpoints are not Megatron-core's", False),
    "checkpoint.optimizer_reshardable_mem_efficient": warning("its checkpoints are not Megatron-core's", False),
    "checkpoint.non_persistent.type": warning(_ONE_KIND, works=("checkpoint.save_interval=100",)),
    "checkpoint.convert.format": Gap(
        why="training does not convert: launch convert does", works=("checkpoint.convert.format=null",)
    ),
    "checkpoint.load_parallel_arguments": warning("the layout is the job's", False),
    "checkpoint.load_tokenizer": Gap(why="the tokenizer is its own or tokenizer.path's", neutral=(False,)),
    "profiler.memory_history": warning("its profiler traces memory", False, works=("profiler.memory=true",)),
    "checkpoint.load_step": Gap(why="name the folder of that step in checkpoint.load"),
    "checkpoint.fallback": Gap(why="weights come from checkpoint.load alone"),
    "checkpoint.load_arguments": Gap(why="sizes come from the file or from config.json", neutral=(False,)),
    "checkpoint.load_schedule": Gap(why="the schedule is the job's", neutral=(False,)),
    "logging.tensorboard_interval": warning(_MONITORS, 1),
    "logging.tensorboard_queue_size": warning(_MONITORS),
    "logging.progress": warning(_MONITORS, False),
    "logging.world_size": warning(_MONITORS, False),
    "logging.experts_by_layer": warning(_MONITORS, False),
    "logging.loss_scale": warning("the loss scale is part of its log line", True),
    "fault_tolerance.check_for_spiky_loss": warning(_NO_SWITCH, False),
    "fault_tolerance.check_for_large_grads": warning(_NO_SWITCH, False),
    "fault_tolerance.rerun": warning(_NO_SWITCH, "disabled"),
    "fault_tolerance.weight_hash_interval": warning(_NO_SWITCH),
    "fault_tolerance.exit_on_signal": warning("it ends at a signal file (callbacks.OnRequestExit)", False),
}

UNSUPPORTED: Mapping[str, Gap] = {
    **WITHOUT_MEGATRON_LOOP,
    **NO_QK_CLIPPING,
    **_TASK,
    "task.reward_models": Gap(why="MindFormers has no GRPO", works=("task.reward_models=[]",)),
    **_LORA,
    **_MODEL,
    **gemma_gaps(),
    **llama4_gaps(),
    **_TRAINING,
    **_PRECISION,
    **_KERNELS,
    **_PARALLEL,
    **_MEMORY,
    **_MOE,
    **_DATA,
    **_OUTPUTS,
    **_GENERATION,
    "generation.max_new_tokens": Gap(
        why="its files know the longest text only", severity="warning", works=("generation.max_length=…",)
    ),
}

_NEWEST = ("backend.version=2.1.0",)
BEFORE_2_1: Mapping[str, Gap] = {
    "moe.force_load_balancing": Gap(why="it came with 2.1", neutral=(False,), works=_NEWEST),
    "model.sliding_window": Gap(why="windows of attention came with 2.1", works=_NEWEST),
    **BEFORE_2_1_VARIANTS,
}
