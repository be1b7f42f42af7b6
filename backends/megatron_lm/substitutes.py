"""What Megatron-LM does in place of values of other backends' jobs that it cannot take."""

from collections.abc import Mapping

from launcher.job import Job, Value
from launcher.mapping.substitute import Substitute, plain_exchange, stages_without_empty_layers, without


def substitutes() -> tuple[Substitute, ...]:
    """Return the table."""
    return (
        plain_exchange(),
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
            when=lambda job: bool(job.offload.modules) and job.kernels.transformer_impl == "local",
            put=lambda job: {"kernels.transformer_impl": None},
            why="activations are offloaded by Transformer Engine's layers, which are its default",
        ),
        Substitute(
            fields=("model.pretrained",),
            when=lambda job: job.model.starts_from_weights and job.checkpoint.load is None and bool(_name(job)),
            put=_converted,
            why="it reads its own checkpoints only: convert the weights into that folder first, with launch convert "
            "hf-to-mcore",
        ),
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


def _name(job: Job) -> str:
    return (job.model.path or job.model.hub_id or "").rstrip("/").rsplit("/", 1)[-1]


def _converted(job: Job) -> Mapping[str, Value]:
    return {"checkpoint.load": f"{_name(job)}-mcore", "checkpoint.finetune": True, "model.pretrained": None}
