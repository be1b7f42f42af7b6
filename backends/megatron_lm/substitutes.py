"""What Megatron-LM does in place of values of other backends' jobs that it cannot take."""

import math
import re
from collections.abc import Callable, Mapping

from backends.megatron_lm.mapping.sharding import uses_fsdp
from launcher.job import Job, Value
from launcher.mapping.substitute import (
    Substitute,
    alltoall_for_alltoall_seq,
    positive_seed,
    stages_without_empty_layers,
    steps_of_epochs,
    without,
    without_variable,
)


def substitutes() -> tuple[Substitute, ...]:
    """Return the table."""
    return (
        positive_seed(),
        alltoall_for_alltoall_seq(),
        stages_without_empty_layers(),
        undistributed_activations(),
        Substitute(
            fields=("offload.optimizer",),
            when=lambda job: bool(job.offload.optimizer) and not job.optimizer.precision_aware,
            put=lambda job: {"optimizer.precision_aware": True},
            why="its offloaded optimizer is the precision-aware one, with states in FP32 as before",
        ),
        without(
            "moe.batch_overlap",
            lambda job: bool(job.moe.batch_overlap) and job.recompute.granularity == "full",
            "overlapped micro-batches and full recomputation exclude each other here; only speed changes",
        ),
        Substitute(
            fields=("offload.modules",),
            when=lambda job: (
                bool(job.offload.modules or job.offload.attention) and job.kernels.transformer_impl == "local"
            ),
            put=lambda job: {"kernels.transformer_impl": None},
            why="activations are offloaded by Transformer Engine's layers, which are its default",
        ),
        without(
            "moe.shared_expert_overlap",
            lambda job: bool(job.moe.batch_overlap and job.moe.shared_expert_overlap),
            "overlapped micro-batches overlap the shared expert, too; only speed changes",
        ),
        without(
            "parallel.gloo",
            lambda job: (
                job.parallel.gloo is False
                and bool(job.parallel.distributed_optimizer)
                and job.checkpoint.format == "torch"
            ),
            "the distributed optimizer is saved in the format torch through gloo groups only",
        ),
        unmasked_chunks(),
        gathered_fp8_weights(),
        steps_of_samples(),
        steps_of_epochs(),
        weights_converted_first(lambda job: True),
        queues_of_devices(),
    )


def undistributed_activations() -> Substitute:
    """Return the row of activations that are distributed where Megatron-core does not distribute them."""
    return without(
        "recompute.distribute_saved_activations",
        lambda job: (
            bool(job.recompute.distribute_saved_activations)
            and (
                job.parallel.sequence_parallel
                or job.parallel.tp == 1
                or job.recompute.granularity != "full"
                or job.recompute.method is None
            )
        ),
        "saved activations are distributed under full recomputation and tp without sequence parallelism only",
    )


def unmasked_chunks() -> Substitute:
    """Return the row of MindSpeed's general masks of context parallelism where the mask is the causal one."""
    return without(
        "parallel.cp_mask_type",
        lambda job: (
            job.parallel.cp_mask_type == "general" and not job.batch.packing and not job.data.reset_attention_mask
        ),
        "the mask of samples that are neither packed nor reset is causal",
    )


def gathered_fp8_weights() -> Substitute:
    """Return the row of weights gathered in FP8 by an optimizer that is distributed by default in the source."""
    return Substitute(
        fields=("parallel.distributed_optimizer",),
        when=lambda job: bool(job.precision.fp8_param_gather) and job.parallel.distributed_optimizer is None,
        put=lambda job: {"parallel.distributed_optimizer": True},
        why="weights in FP8 are gathered by the distributed optimizer",
    )


def queues_of_devices() -> Substitute:
    """Return the row of the number of queues for kernels, which validate_args checks (MLM-CONNECTIONS and its kin)."""
    return without_variable(
        "CUDA_DEVICE_MAX_CONNECTIONS",
        _other_queues,
        "it is checked when training starts: tensor and context parallelism overlap with one queue, FSDP with several",
    )


def _other_queues(job: Job, number: str) -> bool:
    if uses_fsdp(job):
        return number == "1"
    is_ordered = job.parallel.tp > 1 or job.parallel.cp > 1
    return is_ordered and not job.moe.batch_overlap and number != "1"


def steps_of_samples() -> Substitute:
    """Return the row of epochs over data sets whose numbers of samples the script states (`owner/name#500`)."""
    return Substitute(
        fields=("schedule.epochs",),
        when=lambda job: job.schedule.epochs is not None and bool(_samples(job)) and bool(job.batch.global_batch_size),
        put=lambda job: {"schedule.epochs": None, "schedule.train_iters": _steps(job)},
        why="the steps of these epochs over the stated numbers of samples (#N), each sample a row of the batch",
        affects_training=True,
    )


def _samples(job: Job) -> int:
    """Return the samples of training that the names of data sets state; 0: not all of them do."""
    stated = [re.search(r"#(\d+)$", path) for path in job.data.paths]
    total = sum(int(found[1]) for found in stated if found) if all(stated) else 0
    return total - math.floor(total * (job.data.validation_ratio or 0.0))


def _steps(job: Job) -> int:
    return max(1, math.floor(_samples(job) * (job.schedule.epochs or 1) / (job.batch.global_batch_size or 1)))


def weights_converted_first(when: Callable[[Job], bool]) -> Substitute:
    """Return the row of Hugging Face weights that the backend does not read itself.

    Args:
        when: whether it does not read those of a job.
    """
    return Substitute(
        fields=("model.pretrained",),
        when=lambda job: (
            job.model.starts_from_weights and job.checkpoint.load is None and bool(_name(job)) and when(job)
        ),
        put=_converted,
        why="it reads its own checkpoints only: convert the weights into that folder first, with launch convert "
        "hf-to-mcore",
    )


def _name(job: Job) -> str:
    return (job.model.path or job.model.hub_id or "").rstrip("/").rsplit("/", 1)[-1]


def _converted(job: Job) -> Mapping[str, Value]:
    return {"checkpoint.load": f"{_name(job)}-mcore", "checkpoint.finetune": True, "model.pretrained": None}
