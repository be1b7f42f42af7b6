"""Canonical fields that need no key of MindFormers, with reasons."""

from collections.abc import Mapping

from backends.megatron_lm.mapping.attention_variants import LLAMA4_IRRELEVANT
from backends.megatron_lm.mapping.optimizer import MUON_FIELDS
from launcher.job import field_paths
from launcher.job.fault_tolerance import OF_LAUNCHER
from launcher.mapping.rows import only_with, without

_LAUNCHER = "read by the launcher alone"
_MSRUN = "part of the msrun command"
_MAPPED_CLUSTER = ("cluster.nodes", "cluster.devices_per_node")
_MUON = without("optimizer.type=muon")
_FP8 = without("precision.first_last_layers_bf16")
_TENSOR_PARALLEL = without("overlap.tp_comm")
_SWAPPED = "the optimizer is swapped, not stepped on the host"
_MAMBA_ONLY = ("state_dim", "head_dim", "num_heads", "num_groups", "d_conv", "expand", "chunk_size")
_DELTA = ("num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim", "conv_kernel_dim")
IRRELEVANT: Mapping[str, str] = {
    **LLAMA4_IRRELEVANT,
    **dict.fromkeys(("name", "runtime", "model.overridden", "model.newer_names"), _LAUNCHER),
    **dict.fromkeys(("tokenizer.pad_is_eos", "tokenizer.has_code"), "it says what the tokenizer does"),
    "fault_tolerance.timeout_minutes": "HCCL_EXEC_TIMEOUT in the environment of the launch",
    **{path: _LAUNCHER for path in field_paths() if path.startswith("cluster.") and path not in _MAPPED_CLUSTER},
    **dict.fromkeys(("cluster.master_addr", "cluster.master_port"), _MSRUN),
    **dict.fromkeys(OF_LAUNCHER, _LAUNCHER),
    "kernels.manual_gc_interval": "the graph runs outside Python",
    **{f"backend.{name}": _LAUNCHER for name in ("name", "version", "args", "env")},
    **{path: "describes the machine" for path in field_paths() if path.startswith("hardware.")},
    **{
        path: _LAUNCHER
        for path in field_paths()
        if path.startswith(("estimate.", "search.", "imported.", "rehearse.", "rules."))
    },
    "parallel.fsdp.keep_fp8_transpose_cache": without("FP8"),
    "parallel.fsdp.strict_load": "a matter of checkpoints of Megatron-core's FSDP",
    "kernels.cuda_graph.scope": without("kernels.cuda_graph.impl"),
    "kernels.cuda_graph.warmup_steps": without("kernels.cuda_graph.impl"),
    "kernels.clone_scatter_output_in_embedding": "the graph has its memory planned",
    **{
        f"overlap.tp.{name}": _TENSOR_PARALLEL
        for name in (
            "overlap_ag",
            "overlap_rs",
            "overlap_rs_dgrad",
            "split_ag",
            "split_rs",
            "bulk_dgrad",
            "bulk_wgrad",
            "config",
            "bootstrap_backend",
        )
    },
    **{
        f"offload.{name}": _SWAPPED
        for name in ("torch_optimizer", "overlap_cpu_optimizer_d2h_h2d", "pin_cpu_grads", "pin_cpu_params")
    },
    **only_with("checkpoint.non_persistent.type", "checkpoint.non_persistent."),
    "checkpoint.convert.save": without("checkpoint.convert.format"),
    "checkpoint.convert.update_legacy_optimizer": "a matter of Megatron-core's checkpoints",
    "profiler.memory_snapshot_path": without("profiler.memory_history"),
    **dict.fromkeys(MUON_FIELDS, _MUON),
    "precision.num_layers_at_start_in_bf16": _FP8,
    "precision.num_layers_at_end_in_bf16": _FP8,
    "model.cpu_initialization": "MindSpore draws the initial weights on the host",
    "overlap.embedding_wgrad_limit": without("overlap.embedding_wgrad"),
    "parallel.gloo": "its host groups are MindSpore's own",
    "kernels.persist_layer_norm": "the graph compiler chooses kernels",
    "kernels.te_rng_tracker": "a matter of Transformer Engine",
    "kernels.empty_cache_level": "the graph has its memory planned",
    "checkpoint.detect_format": "checkpoint.load_format sets it",
    "checkpoint.parallel_save": "every rank writes its own part",
    "checkpoint.parallel_load": "every rank reads its own part",
    "checkpoint.constant_structure": "every rank writes its own part",
    "logging.wandb_dir": without("logging.wandb_project"),
    "logging.level": "set backend.env.GLOG_v",
    "logging.timer_ranks": without("logging.timer_level"),
    **{f"model.mamba_{name}": without("model.mamba") for name in _MAMBA_ONLY},
    **{f"model.linear_{name}": without("linear attention") for name in _DELTA},
    "precision.fp4_recipe": without("precision.fp4_format"),
    "precision.fp4_param_gather": without("precision.fp4_format"),
    "optimizer.muon_coefficient_type": _MUON,
    "optimizer.muon_scalar_optimizer": _MUON,
    "precision.disable_bf16_reduced_precision_matmul": "Ascend adds up products of bf16 in fp32",
    "kernels.inference_rng_tracker": "it keeps no random states for inference",
}
