"""Lower bounds of a simulated step that need no order of steps."""


def busiest_stage(work: float, micro_batches: int) -> float:
    """Return the least time of a step whose busiest stage works this long on a micro-batch."""
    return work * micro_batches


def even_stages(work: float, micro_batches_per_stage: float) -> float:
    """Return the least time of a step whose stages together work this long on a micro-batch.

    The busiest stage has at least an equal share, so that the number of stages only divides the micro-batches.
    """
    return micro_batches_per_stage * work


def one_chunk_stages(work: float, micro_batches: float, stages: int) -> float:
    """Return the least time of a step of 1F1B whose stages together work this long on a micro-batch.

    Stage s begins after one forward of every stage before it and ends before their last backward, so that a step takes
    at least w_1 + … + w_(s-1) + m w_s, w being the work of a stage and m the micro-batches. The split for which the
    largest of these is least makes all of them equal: T = W / (1 - (1 - 1/m)^p) with p stages and W in total.
    """
    return work / (1.0 - (1.0 - 1.0 / max(micro_batches, 1.0)) ** stages)
