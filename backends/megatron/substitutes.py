"""What Megatron-SWIFT does in place of values of other backends' jobs that it cannot take."""

from backends.megatron_lm.mapping.sharding import uses_megatron_fsdp
from backends.megatron_lm.substitutes import unmasked_chunks
from launcher.job import Job
from launcher.mapping.substitute import (
    Substitute,
    alltoall_for_alltoall_seq,
    alltoall_for_other_dispatchers,
    positive_seed,
    runs_of_the_job,
    stages_without_empty_layers,
    steps_of_epochs,
    without,
    without_each,
    without_variable,
)

_OWN_TOKENIZER = "the tokenizer is read from the model's directory"
# mcore-bridge keeps the last checkpoint beside the best one.
_FEWEST_CHECKPOINTS = 2


def substitutes() -> tuple[Substitute, ...]:
    """Return the table."""
    return (
        positive_seed(),
        alltoall_for_alltoall_seq(),
        stages_without_empty_layers(),
        steps_of_epochs(),
        without(
            "moe.force_load_balancing",
            lambda job: bool(job.moe.force_load_balancing),
            "the router decides where tokens go, as in a training: evenly spread ones are for measurements",
            affects_training=True,
        ),
        without(
            "parallel.cp_mask_type",
            lambda job: job.parallel.cp_mask_type == "general" and bool(job.batch.packing),
            "packed samples are kept apart by their lengths, without a mask",
        ),
        unmasked_chunks(),
        alltoall_for_other_dispatchers(
            "its sequences have variable lengths, which allgather does not support", "allgather"
        ),
        *runs_of_the_job(),
        *without_each(
            "precision.residual_in_fp32", "residual connections are in the model's precision", neutral=(False,)
        ),
        without("tokenizer.path", _both_open, _OWN_TOKENIZER),
        without(
            "tokenizer.type",
            lambda job: (job.tokenizer.type or "").endswith("Tokenizer"),
            f"{_OWN_TOKENIZER}, as Hugging Face's",
            affects_training=True,
        ),
        Substitute(
            fields=("data.split",),
            when=lambda job: job.data.format != "megatron" and _validation_share(job) is not None,
            put=lambda job: {"data.split": None, "data.validation_ratio": _validation_share(job)},
            why="it takes the share of the evaluation, and no test data",
        ),
        Substitute(
            fields=("checkpoint.save_total_limit",),
            when=lambda job: job.checkpoint.save_total_limit == 1,
            put=lambda job: {"checkpoint.save_total_limit": _FEWEST_CHECKPOINTS},
            why="it keeps two checkpoints or more",
        ),
        without(
            "recompute.distribute_saved_activations",
            lambda job: bool(job.recompute.distribute_saved_activations and job.parallel.sequence_parallel),
            "sequence parallelism distributes saved activations already",
        ),
        without_variable(
            "CUDA_DEVICE_MAX_CONNECTIONS",
            lambda job, number: number == "1" and uses_megatron_fsdp(job),
            "Megatron-FSDP overlaps communication with several queues only",
        ),
    )


def _both_open(job: Job) -> bool:
    """Return whether model and tokenizer are named by blanks that the user fills in (`your tokenizer path`, `$2`)."""
    return all(
        path is not None and ("your" in path or "$" in path) for path in (job.tokenizer.path, job.model.path or "your")
    )


def _validation_share(job: Job) -> float | None:
    """Return the share of the evaluation in `data.split`, of training and evaluation; None: there is none."""
    try:
        train, valid, *_ = [float(part) for part in (job.data.split or "").split(",")]
    except ValueError:
        return None
    return round(valid / (train + valid), 6) if valid > 0 and train + valid > 0 else None
