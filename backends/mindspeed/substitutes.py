"""What MindSpeed-LLM does in place of values of other backends' jobs that it cannot take."""

from collections.abc import Mapping

from backends.megatron_lm.substitutes import (
    gathered_fp8_weights,
    queues_of_devices,
    steps_of_samples,
    undistributed_activations,
    weights_converted_first,
)
from backends.mindspeed.families import FAMILIES
from launcher.job import Job, Value
from launcher.mapping.substitute import Substitute, positive_seed, steps_of_epochs, without, without_each


def substitutes() -> tuple[Substitute, ...]:
    """Return the table."""
    return (
        positive_seed(),
        undistributed_activations(),
        gathered_fp8_weights(),
        steps_of_samples(),
        steps_of_epochs(),
        weights_converted_first(_is_converted_apart),
        queues_of_devices(),
        Substitute(
            fields=("parallel.distributed_optimizer",),
            when=lambda job: bool(job.offload.optimizer) and job.parallel.distributed_optimizer is None,
            put=lambda job: {"parallel.distributed_optimizer": True},
            why="it swaps the optimizer that is distributed",
        ),
        Substitute(
            fields=("kernels.transformer_impl",),
            when=lambda job: job.precision.fp8_format is not None and job.kernels.transformer_impl in (None, "local"),
            put=lambda job: {"kernels.transformer_impl": "transformer_engine"},
            why="FP8 needs these layers",
        ),
        # mindspeed_llm/features_manager/finetune/lora.py:63 @26.1.0
        Substitute(
            fields=("moe.token_dispatcher_type",),
            when=lambda job: (
                job.lora.rank is not None and job.model.is_moe and job.moe.token_dispatcher_type in (None, "alltoall")
            ),
            put=_alltoall_seq,
            why="adapters of experts need it; tokens go to the same experts, in another order of communication",
        ),
        *without_each(
            "optimizer.exp_avg_dtype optimizer.exp_avg_sq_dtype",
            "its optimizer keeps states in FP32",
            neutral=("fp32", "fp16", "fp8"),
        ),
        without(
            "moe.permute_fusion",
            lambda job: bool(job.moe.permute_fusion) and job.moe.capacity_factor is not None,
            "a capacity of experts excludes the fused permutation; only speed changes",
        ),
        without(
            "lora.dropout",
            lambda job: bool(job.lora.dropout),
            "its adapters have no dropout",
            affects_training=True,
        ),
        without(
            "checkpoint.save_safetensors",
            lambda job: bool(job.checkpoint.save_safetensors) and job.lora.rank is not None,
            "adapters are not converted while it trains: launch convert mcore-to-hf afterwards",
        ),
    )


def _alltoall_seq(job: Job) -> Mapping[str, Value]:
    """Return the dispatcher, which splits experts as attention is split (MLM-SEQ-DISPATCHER-ETP)."""
    found: dict[str, Value] = {"moe.token_dispatcher_type": "alltoall_seq"}
    parallel = job.parallel
    if job.cluster.world_size % (parallel.tp * parallel.ep * parallel.pp) == 0:
        found["parallel.etp"] = parallel.tp
    return found


def _is_converted_apart(job: Job) -> bool:
    """Return whether the converter knows the family, and the start of training does not convert it, or no FP8."""
    row = FAMILIES.get(job.model.model_type or "")
    version = job.backend.version
    if row is None or row.converter is None or version is None or job.lora.rank is not None:
        return False
    return not row.converts_at_start(version) or (job.model.hub_id or "").endswith("-FP8")
