"""Converts lengths of the learning-rate schedule from samples to iterations, for backends that count iterations."""

from launcher.job import Job
from launcher.mapping.rows import Unsupported


def in_steps(job: Job, name: str) -> int | None:
    """Return `schedule.NAME_iters`, or `schedule.NAME_samples` converted to a whole number of steps.

    Raises:
        Unsupported: both are given, or the samples are not a whole number of global batches.
    """
    steps, samples = getattr(job.schedule, f"{name}_iters"), getattr(job.schedule, f"{name}_samples")
    path, batch = f"schedule.{name}_samples", job.batch.global_batch_size
    if samples is None:
        return None if steps is None else int(steps)
    if steps is not None:
        raise Unsupported(path, f"schedule.{name}_iters={steps} is set too", (f"{path}=null",))
    if not batch or samples % batch:
        why = "steps are counted here, and this is not a whole number of global batches"
        works = (f"{path}={max(1, round(samples / batch)) * batch}",) if batch else ()
        raise Unsupported(path, why, works)
    return int(samples // batch)
