"""What MindFormers does in place of values of other backends' jobs that it cannot take."""

from backends.megatron_lm.substitutes import unmasked_chunks
from launcher.mapping.substitute import (
    Substitute,
    alltoall_for_alltoall_seq,
    alltoall_for_other_dispatchers,
    runs_of_the_job,
    without,
    without_each,
)


def substitutes() -> tuple[Substitute, ...]:
    """Return the table."""
    return (
        alltoall_for_alltoall_seq(),
        alltoall_for_other_dispatchers("its token dispatcher is all-to-all", "allgather", "flex"),
        *runs_of_the_job(),
        unmasked_chunks(),
        Substitute(
            fields=("recompute.num_layers",),
            when=lambda job: (
                job.recompute.granularity == "full"
                and job.recompute.method != "block"
                and (job.recompute.num_layers or 1) > 1
            ),
            put=lambda job: {"recompute.num_layers": 1},
            why="it recomputes each layer by itself, not in groups",
        ),
        *without_each(
            "optimizer.precision_aware optimizer.exp_avg_dtype optimizer.exp_avg_sq_dtype optimizer.main_grads_dtype",
            "the optimizer's states and main gradients are FP32",
            neutral=(False, "fp32"),
        ),
        *without_each(
            "precision.fp8_format precision.fp8_recipe precision.fp8_param_gather precision.fp8_amax_history_len "
            "precision.fp8_amax_compute_algo precision.fp8_margin precision.fp8_wgrad",
            "products are computed in the model's precision, without FP8",
            neutral=(False,),
        ),
        without(
            "checkpoint.no_load_optim",
            lambda job: bool(job.checkpoint.no_load_optim) and job.checkpoint.load is None,
            "without a checkpoint to resume there is no optimizer's state",
        ),
        Substitute(
            fields=("checkpoint.no_load_optim",),
            when=lambda job: bool(job.checkpoint.no_load_optim) and job.checkpoint.load is not None,
            put=lambda job: {"checkpoint.no_load_optim": None, "checkpoint.finetune": True},
            why="a start from the weights alone is a new run (checkpoint.finetune=true)",
        ),
    )
