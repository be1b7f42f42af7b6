"""Effects of MindFormers keys without a canonical field, for porting a configuration to another stack.

Sources: mindformers/{trainer,core,parallel_core,dataset,models}/ at 1.6.0 and 2.1.0, and MindSpore's set_context and
set_auto_parallel_context.
"""

from backends.mindformers.native_only.model import MODEL_ROWS
from backends.mindformers.native_only.single import SINGLE
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

_TRAINER = "it is a part of MindFormers' own trainer"
_MINDSPORE = "it is a switch of MindSpore's compiler and runtime"
_CALLBACK = "it is a callback of MindFormers"
_DATA = "it is a part of MindFormers' own data sets"
_PREDICT = "it is for prediction and evaluation"
_INNER = "the trainer fills it in by itself"
_LEGACY_MOE = "it is a switch of MindFormers' older experts"


def _has_experts(job: Job) -> bool:
    return bool(job.model.num_experts)


_TRAINING_ROWS = (
    row(
        "data_skip_steps ignore_data_skip",
        "chooses where data goes on after a restart",
        TRAINING,
        _TRAINER,
        without="data continue where the checkpoint ended",
        neutral=(0,),
    ),
    row(
        "print_separate_loss callbacks.MFLossMonitor.print_separate_loss runner_wrapper.print_separate_loss "
        "model.model_config.print_separate_loss",
        "logs the balancing loss by itself",
        OUTPUT,
        _TRAINER,
    ),
    row(
        "profile_* profiler_* mstx data_simplification with_stack",
        "tunes the profiler",
        OUTPUT,
        _TRAINER,
        "profiler.enabled=true",
    ),
    row(
        "load_ckpt_async transform_process_num transform_by_rank reshard_worker_num npu_num_per_node "
        "mindio_pool_capacity",
        "changes how checkpoints are read",
        START,
        _TRAINER,
    ),
    row(
        "use_legacy_format ckpt_use_legacy_format remove_redundancy resume_by_last_timestamp_ckpt "
        "use_checkpoint_health_monitor checkpoint",
        "chooses how checkpoints are kept",
        OUTPUT,
        _TRAINER,
        "checkpoint.save_interval=500",
    ),
    row(
        "use_graceful_exit",
        "ends the run after a checkpoint when it is asked to",
        OUTPUT,
        _TRAINER,
        "fault_tolerance.exit_on_signal=true",
    ),
    row(
        "adapter_id infer_precision_sync input_data predict_batch_size postprocess_use_numpy save_file top_k "
        "generation_config",
        "is for prediction",
        NOTHING,
        _PREDICT,
        unrelated=True,
    ),
    row("push_to_hub hub_* trust_remote_code", "opens a hub", OUTPUT, "other stacks write local files", unrelated=True),
    row("exclude_cann_cpu context.affinity_cpu_list", "binds processes to cores", SPEED, _MINDSPORE),
    row("balanced_load", "deals samples of long sequences evenly", TRAINING, _TRAINER),
    row(
        "grouped_lr_schedule grouped_lr_schedule.*",
        "gives groups of weights learning rates of their own",
        TRAINING,
        _TRAINER,
        without="all weights share one learning rate",
    ),
    row("tensorboard*", "writes figures for TensorBoard", OUTPUT, _TRAINER, "logging.tensorboard_dir=DIR"),
    row(
        "processor* eval_dataset* metric* eval_callbacks*",
        "is for prediction and evaluation",
        NOTHING,
        _PREDICT,
    ),
    row("model.arch model.model_config", "is a section without keys", NOTHING, _INNER, unrelated=True),
    row("model.arch.*", "names the class of the model", MODEL, "it is a class of MindFormers", "model.path=DIR"),
)

_SCHEDULE = (
    row(
        "optimizer.learning_rate",
        "sets the learning rate where no schedule does",
        TRAINING,
        _TRAINER,
        "optimizer.lr={value}",
        without="the schedule's learning rate applies",
        read=lambda job: job.optimizer.lr is None,
    ),
    row(
        "lr_schedule.type",
        "chooses a schedule of the learning rate",
        TRAINING,
        _TRAINER,
        "schedule.lr_decay_style=cosine",
    ),
    row(
        "lr_schedule.max_lr lr_schedule.base_lr",
        "sets the highest learning rate",
        TRAINING,
        _TRAINER,
        "optimizer.lr={value}",
    ),
    row(
        "lr_schedule.min_lr lr_schedule.lr_end lr_schedule.eta_min",
        "sets the last learning rate",
        TRAINING,
        _TRAINER,
        "optimizer.min_lr={value}",
    ),
    row(
        "lr_schedule.warmup_steps lr_schedule.total_steps",
        "sets the length of warm-up and decay",
        TRAINING,
        _TRAINER,
        "schedule.lr_warmup_iters={value}",
        neutral=(-1, 0),
    ),
    row(
        "lr_schedule.*",
        "tunes a schedule that only MindFormers has",
        TRAINING,
        _TRAINER,
        "schedule.lr_decay_style=cosine",
        without="the learning rate follows another curve",
    ),
    row("optimizer.type", "chooses an optimizer", TRAINING, "it is an optimizer of MindFormers", "optimizer.type=adam"),
    row(
        "optimizer.beta1",
        "sets AdamW's first decay",
        TRAINING,
        "the optimizer named beside it is MindFormers' own",
        "optimizer.adam_beta1={value}",
    ),
    row(
        "optimizer.beta2",
        "sets AdamW's second decay",
        TRAINING,
        "the optimizer named beside it is MindFormers' own",
        "optimizer.adam_beta2={value}",
    ),
    row(
        "optimizer.adamw_* optimizer.matched_adamw_rms optimizer.momentum optimizer.nesterov optimizer.ns_steps "
        "optimizer.qk_clip_threshold",
        "tunes the optimizer Muon",
        TRAINING,
        "it is MindFormers' own Muon",
        "optimizer.type=adam",
        no_field="It tunes MindFormers' own Muon, which a job cannot choose.",
        source="mindformers/core/optim/muon.py:274 @2.1.0",
        read=lambda job: "muon" in str(job.optimizer.type or "").lower(),
    ),
    row("optimizer.use_fused", "computes AdamW in one kernel", SPEED, _MINDSPORE),
    row(
        "optimizer.*",
        "tunes an optimizer that only MindFormers has",
        TRAINING,
        "it is an optimizer of MindFormers",
        "optimizer.type=adam",
    ),
    row(
        "runner_wrapper.type",
        "names the training step's class",
        TRAINING,
        "it is a class of MindFormers",
        neutral=("MFTrainOneStepCell", "MFPipelineWithLossScaleCell"),
    ),
    row(
        "runner_wrapper.scale_* runner_wrapper.loss_scale_* runner_wrapper.max_scale_window "
        "runner_wrapper.min_scale_window",
        "tunes the loss scale",
        TRAINING,
        _TRAINER,
        "precision.loss_scale={value}",
        read=lambda job: job.precision.dtype == "fp16",
    ),
    row(
        "runner_wrapper.use_skip_data_by_global_norm runner_wrapper.global_norm_spike_threshold",
        "skips steps whose gradients are large",
        TRAINING,
        _TRAINER,
        "optimizer.clip_grad=1.0",
        without="such steps are trained with clipped gradients",
        read=lambda job: bool(job.backend.passthrough.get("runner_wrapper.use_skip_data_by_global_norm")),
    ),
    row(
        "runner_wrapper.calculate_per_token_loss",
        "divides the loss by the tokens of all devices",
        TRAINING,
        _TRAINER,
        "precision.calculate_per_token_loss={value}",
    ),
    row("runner_wrapper.*", "tunes what the training step logs", OUTPUT, _TRAINER),
    row(
        "runner_config.stop_step",
        "ends the run before its last step",
        OUTPUT,
        _TRAINER,
        "schedule.exit_interval={value}",
    ),
    row("runner_config.num_classes", "is for classifiers", NOTHING, _PREDICT),
)

_PARALLEL = (
    row(
        "parallel_config.optimizer_shard",
        "shards the optimizer (older name)",
        MEMORY,
        "it is a deprecated name",
        "parallel.distributed_optimizer={value}",
    ),
    row("parallel_config.mem_coeff", "steers a search for a layout", NOTHING, _MINDSPORE),
    row("parallel_config.*", "tunes the split", SPEED, _TRAINER),
    row(
        "parallel.gradient_fp32_sync parallel.force_fp32_communication",
        "adds gradients up in fp32",
        TRAINING,
        _MINDSPORE,
        "precision.grad_reduce_in_fp32={value}",
    ),
    row(
        "parallel.loss_repeated_mean",
        "divides gradients by repeated losses",
        TRAINING,
        _MINDSPORE,
        without="other stacks compute each loss once",
        neutral=(True,),
    ),
    row("parallel.dataset_strategy", "deals samples to devices", START, _MINDSPORE),
    row(
        "parallel.parallel_optimizer_config",
        "tunes the sharded optimizer",
        MEMORY,
        _MINDSPORE,
        "parallel.distributed_optimizer=true",
    ),
    row("parallel.*", "tunes MindSpore's automatic parallelism", SPEED, _MINDSPORE),
    row(
        "recompute_config.recompute",
        "chooses which layers are computed again",
        MEMORY,
        _MINDSPORE,
        "recompute.granularity=full",
    ),
    row(
        "recompute_config.*",
        "chooses which operators are computed again",
        MEMORY,
        "it names operators of MindFormers' graph",
        "recompute.granularity=selective",
    ),
    row("swap_config.*", "moves activations to host memory", MEMORY, _MINDSPORE, "offload.attention=true"),
    row(
        "context.deterministic",
        "asks for the same numbers in every run",
        TRAINING,
        _MINDSPORE,
        "kernels.deterministic=true",
    ),
    row(
        "context.enable_reduce_precision context.enable_auto_mixed_precision context.ascend_config",
        "lets operators compute in less precision",
        TRAINING,
        _MINDSPORE,
        "precision.dtype=bf16",
    ),
    row("context.*", "tunes MindSpore's compiler and runtime", SPEED, _MINDSPORE),
)

_CALLBACKS = (
    row(
        "callbacks.TopkBiasBalanceCallback.*",
        "balances experts by a bias",
        MODEL,
        _CALLBACK,
        "model.router_expert_bias=true",
        read=_has_experts,
    ),
    row(
        "callbacks.ExpertMigrateCallback.* callbacks.ColdHotExpertMonitor.*",
        "moves busy experts to other devices",
        SPEED,
        _CALLBACK,
        read=_has_experts,
    ),
    row(
        "callbacks.TrainingStateMonitor.use_skip_data_by_global_norm",
        "skips steps whose gradients are large",
        TRAINING,
        _CALLBACK,
        "optimizer.clip_grad=1.0",
        without="such steps are trained with clipped gradients",
    ),
    row(
        "callbacks.CheckpointMonitor.*",
        "chooses how checkpoints are written",
        OUTPUT,
        _CALLBACK,
        "checkpoint.save_interval=500",
    ),
    row("callbacks.*", "logs, or watches the run", OUTPUT, _CALLBACK, "logging.interval=1"),
    row(
        "monitor_config.*",
        "logs norms and losses of parts of the model",
        OUTPUT,
        _CALLBACK,
        "logging.params_norm=true",
    ),
)

_DATASET = (
    row(
        "train_dataset.data_loader.config.random_seed", "seeds the order of data", TRAINING, _DATA, "data.seed={value}"
    ),
    row("train_dataset.data_loader.config.shuffle", "shuffles the data", TRAINING, _DATA, "data.shuffle={value}"),
    row(
        "train_dataset.batch_size",
        "sets the batch where the runner does not",
        NOTHING,
        "runner_config.batch_size replaces it",
    ),
    row(
        "train_dataset.auto_tune train_dataset.autotune_per_step train_dataset.filepath_prefix "
        "train_dataset.profile train_dataset.data_loader.num_parallel_workers "
        "train_dataset.data_loader.python_multiprocessing train_dataset.data_loader.process_num "
        "train_dataset.data_loader.use_broadcast_data "
        "train_dataset.data_loader.mmap",
        "tunes the loading of data",
        SPEED,
        _DATA,
        "data.num_workers=4",
    ),
    row(
        "train_dataset.output_columns train_dataset.construct_args_key train_dataset.column_order "
        "train_dataset.data_loader.column_names",
        "names what the model is fed with",
        NOTHING,
        "other stacks name it by themselves",
    ),
    row(
        "train_dataset.data_loader.create_compressed_eod_mask train_dataset.data_loader.compressed_eod_mask_length "
        "train_dataset.data_loader.create_attention_mask train_dataset.eod_reset train_dataset.eod_token_id",
        "separates packed documents",
        MODEL,
        _DATA,
        "data.reset_attention_mask=true",
        neutral=(False, 128),
    ),
    row("train_dataset.token_monitor train_dataset.token_monitor_config", "counts tokens", OUTPUT, _DATA),
    row(
        "train_dataset.data_loader.handler",
        "prepares raw samples",
        MODEL,
        _DATA,
        "data.format=messages",
        without="prepare the data before",
    ),
    row("train_dataset.data_loader.config.type", "names the class of the data set", NOTHING, _INNER),
    row("train_dataset.data_loader", "is a section without keys", NOTHING, _INNER),
    row(
        "train_dataset.* train_dataset_task.*",
        "chooses how samples are read",
        TRAINING,
        _DATA,
        "data.paths=[PREFIX]",
        without="the other stack reads data in its own way",
    ),
)

_MOE = (
    row(
        "moe_config.aux_loss_factors moe_config.aux_loss_types",
        "weighs the balancing loss",
        MODEL,
        _LEGACY_MOE,
        "moe.aux_loss_coeff={value}",
        "moe.aux_loss_coeff=0.001",
        read=_has_experts,
    ),
    row(
        "moe_config.z_loss_factor",
        "weighs the router's z-loss",
        MODEL,
        _LEGACY_MOE,
        "moe.z_loss_coeff={value}",
        read=_has_experts,
    ),
    row(
        "moe_config.enable_sdrop",
        "drops tokens above an expert's capacity",
        MODEL,
        _LEGACY_MOE,
        "moe.capacity_factor=1.1",
        read=_has_experts,
    ),
    row(
        "moe_config.router_dense_type",
        "chooses the router's precision",
        TRAINING,
        _LEGACY_MOE,
        "moe.router_dtype=fp32",
        read=_has_experts,
    ),
    row(
        "moe_config.topk_method moe_config.use_shared_expert_gating",
        "chooses experts",
        MODEL,
        _LEGACY_MOE,
        "model.num_experts_per_tok=8",
        read=_has_experts,
    ),
    row(
        "moe_config.*",
        "tunes how experts are placed and run",
        SPEED,
        _LEGACY_MOE,
        "moe.token_dispatcher_type=alltoall",
        read=_has_experts,
    ),
)

_GROUPS = (group_row(("GeneralConfig",), "tunes the run", TRAINING, _TRAINER),)

NATIVE_ONLY: tuple[NativeOnlyArg, ...] = (
    *SINGLE,
    *_TRAINING_ROWS,
    *_SCHEDULE,
    *_PARALLEL,
    *_CALLBACKS,
    *_DATASET,
    *_MOE,
    *MODEL_ROWS,
    *_GROUPS,
)


def rows() -> tuple[NativeOnlyArg, ...]:
    """Return the table."""
    return NATIVE_ONLY
