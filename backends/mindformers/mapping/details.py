"""Rows and gaps for advanced settings shared with Megatron: rotary embedding, token files, fault tolerance."""

from collections.abc import Mapping

from backends.mindformers.mapping.loader import CONFIG, is_megatron
from backends.mindformers.mapping.support import key
from launcher.mapping.rows import Gap, Row, same


def model_detail_rows() -> tuple[Row, ...]:
    """Return the rows of the model section."""
    return (
        same("model.rotary_interleaved", key("rotary_interleaved")),
        same("model.post_norm_residual", key("apply_residual_connection_post_layernorm")),
        same("moe.force_load_balancing", key("moe_router_force_expert_balance"), since="2.1"),
    )


def data_detail_rows() -> tuple[Row, ...]:
    """Return the rows of reading token files."""
    return (
        same("data.mmap", f"{CONFIG}mmap_bin_files", when=is_megatron),
        same("data.index_threads", f"{CONFIG}num_dataset_builder_threads", when=is_megatron),
    )


def fault_rows() -> tuple[Row, ...]:
    """Return the row of the NaN check that ends training."""
    return (same("fault_tolerance.check_for_nan", "check_for_nan_in_loss_and_grad"),)


def _told(why: str, *neutral: object) -> Gap:
    return Gap(why=why, neutral=neutral, severity="warning")


_NO_FP8 = "Ascend's static graph trains in bf16, fp16 or fp32"
_NO_SWITCH = "it has no such switch; training is unaffected"
_MONITORS = "its monitors log other figures"
_TOKENIZER = "it loads Hugging Face tokenizers"
_CONSTANT = "its weight decay is constant"
_ADAMW = "all layers share one learning rate"

DETAIL_GAPS: Mapping[str, Gap] = {
    "batch.rampup_batch_size": Gap(why="a static graph has one batch size", works=("batch.rampup_batch_size=[]",)),
    "schedule.skip_iterations": Gap(
        why="data_skip_steps leaves out the first steps only", works=("schedule.skip_iterations=[]",)
    ),
    "schedule.exit_interval": Gap(why="training runs to its end", works=("schedule.exit_interval=null",)),
    "schedule.exit_minutes": Gap(why="training runs to its end", works=("schedule.exit_minutes=null",)),
    "optimizer.weight_decay_style": Gap(why=_CONSTANT, neutral=("constant",)),
    "optimizer.start_weight_decay": Gap(why=_CONSTANT),
    "optimizer.end_weight_decay": Gap(why=_CONSTANT),
    "optimizer.decay_qk_layernorm": Gap(why="norms have no weight decay", neutral=(False,)),
    "optimizer.decoupled_lr": Gap(why=_ADAMW),
    "optimizer.decoupled_min_lr": Gap(why=_ADAMW),
    "precision.fp8_amax_history_len": Gap(why=_NO_FP8),
    "precision.fp8_amax_compute_algo": Gap(why=_NO_FP8),
    "precision.fp8_margin": Gap(why=_NO_FP8, neutral=(0,)),
    "precision.fp8_wgrad": Gap(why=_NO_FP8, neutral=(True,)),
    "precision.first_last_layers_bf16": Gap(why=_NO_FP8, neutral=(False,)),
    "precision.fp16_lm_cross_entropy": Gap(why="the loss is computed in fp32", neutral=(False,)),
    "precision.min_loss_scale": _told("its dynamic loss scale falls to 1", 1.0),
    "precision.loss_scale_hysteresis": _told("its dynamic loss scale falls at the first overflow", 1),
    "model.norm_zero_centered": Gap(why="its norms multiply by the weight itself", neutral=(False,)),
    "model.init_per_replica": Gap(why="replicas start alike", neutral=(False,)),
    "overlap.param_gather_with_optimizer_step": _told(_NO_SWITCH, False),
    "overlap.grad_bucket_size": _told(_NO_SWITCH),
    "overlap.grad_buckets": _told(_NO_SWITCH),
    "overlap.average_in_collective": _told(_NO_SWITCH, False),
    "overlap.embedding_wgrad": _told(_NO_SWITCH, False),
    "overlap.p2p_warmup_flush": _told(_NO_SWITCH, False),
    "parallel.optimizer_instances": _told("say it with parallel.optimizer_shard_size", 1),
    "parallel.dp_outermost": _told("its ranks are numbered data, pipeline, tensor parallel as MindSpore has it", False),
    "data.test_paths": _told("no test follows training"),
    "data.paths_file": Gap(why="it reads the list in the file itself", works=("data.paths=[…]",)),
    "data.order": Gap(why="token files are always shuffled by the seed", works=("data.order=null",)),
    "tokenizer.extra_ids": Gap(why=_TOKENIZER, neutral=(0,)),
    "tokenizer.tiktoken_pattern": Gap(why=_TOKENIZER),
    "tokenizer.tiktoken_special_tokens": Gap(why=_TOKENIZER),
    "tokenizer.tiktoken_num_special_tokens": Gap(why=_TOKENIZER),
    "checkpoint.load_step": Gap(why="name the folder of that step in checkpoint.load"),
    "checkpoint.fallback": Gap(why="weights come from checkpoint.load alone"),
    "checkpoint.load_arguments": Gap(why="sizes come from the file or from config.json", neutral=(False,)),
    "checkpoint.load_schedule": Gap(why="the schedule is the job's", neutral=(False,)),
    "logging.tensorboard_interval": _told(_MONITORS, 1),
    "logging.tensorboard_queue_size": _told(_MONITORS),
    "logging.progress": _told(_MONITORS, False),
    "logging.world_size": _told(_MONITORS, False),
    "logging.experts_by_layer": _told(_MONITORS, False),
    "logging.loss_scale": _told("the loss scale is part of its log line", True),
    "fault_tolerance.check_for_spiky_loss": _told(_NO_SWITCH, False),
    "fault_tolerance.check_for_large_grads": _told(_NO_SWITCH, False),
    "fault_tolerance.rerun": _told(_NO_SWITCH, "disabled"),
    "fault_tolerance.weight_hash_interval": _told(_NO_SWITCH),
    "fault_tolerance.exit_on_signal": _told("it ends at a signal file (callbacks.OnRequestExit)", False),
}
BEFORE_2_1: Mapping[str, Gap] = {
    "moe.force_load_balancing": Gap(why="it came with 2.1", neutral=(False,), works=("backend.version=2.1.0",))
}

_MUON = "only with optimizer.type=muon, which it cannot express"
_FP8 = "only with precision.first_last_layers_bf16, which it cannot express"
DETAILS_ASIDE: Mapping[str, str] = {
    **{
        f"optimizer.muon_{name}": _MUON
        for name in (
            "momentum",
            "nesterov",
            "ns_steps",
            "scale_mode",
            "extra_scale_factor",
            "split_qkv",
            "tp_mode",
            "matmul_precision",
        )
    },
    "precision.num_layers_at_start_in_bf16": _FP8,
    "precision.num_layers_at_end_in_bf16": _FP8,
    "model.cpu_initialization": "MindSpore draws the initial weights on the host",
    "overlap.embedding_wgrad_limit": "only with overlap.embedding_wgrad, which it cannot express",
    "parallel.gloo": "its host groups are MindSpore's own",
    "kernels.persist_layer_norm": "the graph compiler chooses kernels",
    "kernels.te_rng_tracker": "a matter of Transformer Engine",
    "kernels.empty_cache_level": "the graph has its memory planned",
    "checkpoint.detect_format": "checkpoint.load_format says it",
    "checkpoint.parallel_save": "every rank writes its own part",
    "checkpoint.parallel_load": "every rank reads its own part",
    "checkpoint.constant_structure": "every rank writes its own part",
    "logging.wandb_dir": "only with logging.wandb_project, which it cannot express",
    "logging.level": "set backend.env.GLOG_v",
    "logging.timer_ranks": "only with logging.timer_level, which it cannot express",
}
