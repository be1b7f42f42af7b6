"""Canonical fields that MindSpeed-LLM cannot express, with reasons."""

from collections.abc import Mapping
from dataclasses import replace

from backends.megatron_lm.mapping.kernels import CUDA_GRAPHS
from backends.megatron_lm.mapping.optimizer import MUON_FIELDS, NO_QK_CLIPPING
from backends.megatron_lm.mapping.unsupported import BEFORE_0_12
from backends.mindspeed.families import MINIMAX_SINCE
from backends.mindspeed.mapping import attention_variants, gemma
from launcher.job import Value
from launcher.mapping.rows import Gap, warning

# Fields whose Megatron-LM arguments MindSpeed-LLM ignores: its training loop (training/training.py:587 @26.1.0) and its
# pretrain_gpt.py (:252) replace the code that reads their arguments.
_LOOP = "its own training loop reads no such argument; training is unaffected"
_FILES = "its pretrain_gpt.py reads the paths of the command line only"
IGNORED_FIELDS: Mapping[str, Gap] = {
    "schedule.sync_interval": warning(_LOOP),
    "logging.straggler.enabled": warning(_LOOP, False),
    "logging.straggler.at_start": warning(_LOOP, True, False),
    "logging.straggler.port": warning(_LOOP),
    "logging.straggler.count": warning(_LOOP),
    "profiler.workload_inspector": warning(_LOOP, False),
    "fault_tolerance.ft_package": warning(_LOOP, False),
    "fault_tolerance.ft_timeouts": warning(_LOOP, False),
    "fault_tolerance.weight_hash_interval": warning(_LOOP),
    "checkpoint.non_persistent.save_interval": warning(
        "its own training loop writes one kind of checkpoints", works=("checkpoint.save_interval=100",)
    ),
    "data.paths_file": Gap(why=_FILES, works=("data.paths=[…]",)),
    "data.split_paths_file": Gap(why=_FILES, works=("data.paths=[…]",)),
    "data.object_storage_cache": Gap(why="it reads no token files of an object store"),
}
UNSUPPORTED: Mapping[str, Gap] = {
    **attention_variants.UNSUPPORTED,
    **gemma.UNSUPPORTED,
    **NO_QK_CLIPPING,
    **IGNORED_FIELDS,
    "model.qk_norm_type": Gap(
        why=f"query and key heads are normalised one by one before {MINIMAX_SINCE}",
        neutral=("per_head",),
        works=(f"backend.version={MINIMAX_SINCE}",),
        matters=lambda job: job.model.qk_layernorm,
    ),
    "task.reward_models": Gap(why="there is no GRPO trainer", works=("task.reward_models=[]",)),
    "lora.dropout": Gap(
        why="adapters have no dropout (training/training.py:186)", neutral=(0.0,), works=("lora.dropout=0",)
    ),
    "lora.rslora": Gap(why="the scale is alpha / rank", neutral=(False,), works=("lora.rslora=false",)),
    "lora.merge": warning("merged weights are made by the converter", False),
    "lora.quantization": Gap(why="quantised base weights were removed after 26.0", works=("lora.quantization=null",)),
    "task.simpo_gamma": Gap(why="SimPO was removed after 2.1.0", works=("backend.version=2.1.0",)),
    "task.desirable_weight": Gap(why="there is no KTO trainer"),
    "task.undesirable_weight": Gap(why="there is no KTO trainer"),
    CUDA_GRAPHS[0]: warning("CUDA graphs are NVIDIA's", "none"),
    "moe.deepep": warning("DeepEP is an NVIDIA library", False),
    "offload.optimizer_fraction": warning(
        "the optimizer is swapped as a whole, in pieces", 1.0, works=("offload.optimizer_times=16",)
    ),
    "recompute.in_bubble": warning("it came after 2.1.0", False),
}


_NEWER = ("backend.version=26.1.0",)


def _newer(*neutral: Value, severity: str = "error") -> Gap:
    return Gap(why="it came with Megatron core 0.9 or later", neutral=neutral, severity=severity, works=_NEWER)


BEFORE_26_1: Mapping[str, Gap] = {
    "parallel.etp": Gap(
        why="experts are split over tp as everything else, or not at all", works=("moe.tp_extend_ep=true",)
    ),
    "parallel.account_for_embedding": _newer(False, severity="warning"),
    "parallel.account_for_loss": _newer(False, severity="warning"),
    "parallel.microbatch_group_size": _newer(severity="warning"),
    "moe.shared_expert_overlap": _newer(False, severity="warning"),
    "optimizer.precision_aware": _newer(False),
    "optimizer.main_grads_dtype": _newer("fp32"),
    "optimizer.main_params_dtype": _newer("fp32"),
    "optimizer.exp_avg_dtype": _newer("fp32"),
    "optimizer.exp_avg_sq_dtype": _newer("fp32"),
    "precision.fp8_recipe": _newer("delayed"),
    "precision.fp8_param_gather": _newer(False),
    "recompute.modules": _newer(("core_attn",), severity="warning"),
    "kernels.cross_entropy_fusion_impl": _newer("native", severity="warning"),
    "checkpoint.save_safetensors": _newer(False, severity="warning"),
    "data.paths_file": _newer(),
    "schedule.skip_iterations": _newer(),
    "precision.first_last_layers_bf16": _newer(False),
    "precision.num_layers_at_start_in_bf16": _newer(),
    "precision.num_layers_at_end_in_bf16": _newer(),
    "kernels.te_rng_tracker": _newer(False, severity="warning"),
    "parallel.optimizer_instances": _newer(1, severity="warning"),
    "overlap.param_gather_with_optimizer_step": _newer(False, severity="warning"),
    "overlap.grad_buckets": _newer(severity="warning"),
    "overlap.p2p_warmup_flush": _newer(False, severity="warning"),
    "fault_tolerance.check_for_spiky_loss": _newer(False, severity="warning"),
    "fault_tolerance.check_for_large_grads": _newer(False, severity="warning"),
    "fault_tolerance.rerun": _newer("disabled", severity="warning"),
    "data.enable_thinking": Gap(why="it came with 26.1", works=("data.enable_thinking=null",)),
    **dict.fromkeys(MUON_FIELDS, _newer()),
    "optimizer.decay_qk_layernorm": _newer(False),
    **{path: replace(gap, works=_NEWER) for path, gap in BEFORE_0_12.items()},
    **attention_variants.BEFORE_26_1,
}
