"""Lower bounds of a simulated step that need no order of steps."""


def busiest_stage(work: float, micro_batches: int) -> float:
    """Return the least time of a step whose busiest stage works this long on a micro-batch."""
    return work * micro_batches


def even_stages(work: float, micro_batches_per_stage: float) -> float:
    """Return the least time of a step whose stages together work this long on a micro-batch.

    The busiest stage has at least an equal share, so that the number of stages only divides the micro-batches.
    """
    return micro_batches_per_stage * work
