"""Gaps for Megatron-LM's arguments of communication, FSDP, CUDA graphs and checkpoints."""

from collections.abc import Mapping

from launcher.mapping.rows import Gap, only_with


def _told(why: str, *neutral: object, works: tuple[str, ...] = ()) -> Gap:
    return Gap(why=why, neutral=neutral, severity="warning", works=works)


_HCCL = "collectives are HCCL's"
_FSDP = "it shards optimizer states and gradients, not weights"
_COMPILED = "the graph compiler schedules communication; it has no key of its own"
_EACH_KEPT = "its checkpoints are of one kind, of which the newest stay"

LAYOUT_GAPS: Mapping[str, Gap] = {
    "parallel.communication.backend": _told(_HCCL, "nccl"),
    "parallel.communication.pipeline_backend": _told(_HCCL, "nccl"),
    "parallel.communication.nccl_config": _told(_HCCL),
    "parallel.communication.ring_exchange_p2p": _told(_HCCL, False),
    "parallel.fsdp.implementation": _told(_FSDP, works=("parallel.zero_stage=2",)),
    "parallel.fsdp.communication_unit_size": _told(_FSDP),
    "parallel.fsdp.init_model_with_meta_device": _told(_FSDP, False),
    "kernels.cuda_graph.impl": _told("the whole step is a graph (graph.mode)", "none"),
    "overlap.gradient_reduce_div_fusion": _told(_COMPILED, True),
    "overlap.pad_buckets": _told(_COMPILED, False),
    "overlap.align_grad_reduce": _told(_COMPILED, True),
    "overlap.align_param_gather": _told(_COMPILED, True),
    "overlap.tp_allreduce": _told(_COMPILED, True),
    "data.sharding": Gap(why="token files are shuffled as a whole", neutral=(False,), works=("data.sharding=false",)),
    "checkpoint.save_retain_interval": _told(
        "it keeps the newest checkpoints", works=("checkpoint.save_total_limit=2",)
    ),
    "checkpoint.persistent_worker": _told("asynchronous saving is a thread", False),
    "checkpoint.save_pre_mcore_014": _told("its checkpoints are not Megatron-core's", False),
    "checkpoint.optimizer_reshardable_mem_efficient": _told("its checkpoints are not Megatron-core's", False),
    "checkpoint.non_persistent.type": _told(_EACH_KEPT, works=("checkpoint.save_interval=100",)),
    "checkpoint.convert.format": Gap(
        why="training does not convert: launch convert does", works=("checkpoint.convert.format=null",)
    ),
    "checkpoint.load_parallel_arguments": _told("the layout is the job's", False),
    "checkpoint.load_tokenizer": Gap(why="the tokenizer is its own or tokenizer.path's", neutral=(False,)),
    "profiler.memory_history": _told("its profiler traces memory", False, works=("profiler.memory=true",)),
}

_TENSOR_PARALLEL = "only with overlap.tp_comm, which it cannot express"
_SWAPPED = "the optimizer is swapped, not stepped on the host"
LAYOUT_ASIDE: Mapping[str, str] = {
    "parallel.fsdp.keep_fp8_transpose_cache": "only with FP8, which it cannot express",
    "parallel.fsdp.strict_load": "a matter of checkpoints of Megatron-core's FSDP",
    "kernels.cuda_graph.scope": "only with kernels.cuda_graph.impl, which it cannot express",
    "kernels.cuda_graph.warmup_steps": "only with kernels.cuda_graph.impl, which it cannot express",
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
    "checkpoint.convert.save": "only with checkpoint.convert.format, which it cannot express",
    "checkpoint.convert.update_legacy_optimizer": "a matter of Megatron-core's checkpoints",
    "profiler.memory_snapshot_path": "only with profiler.memory_history, which it cannot express",
}
