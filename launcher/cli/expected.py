"""What the estimate says of a run's job, beside which `launch status` shows what is measured."""

from dataclasses import replace
from functools import cache
from pathlib import Path

from launcher.executors import private
from launcher.executors.record import JOB, RUN
from launcher.observe.training import Expected

_CPU = "cpu"


@cache
def expected_of(folder: Path) -> Expected:
    """Return what the estimate says of a run's job, once for each run; imports the estimate."""
    file = folder / RUN / JOB
    if not private.is_own(file):
        return Expected(why="its job is not yours to read")
    from launcher.compose import ComposeError, compose
    from launcher.estimate import CannotEstimate, estimate
    from launcher.rules.passthrough import with_passthrough

    try:
        job = compose([f"+job={file}"])
    except ComposeError as error:
        return Expected(why=f"{file} is no job of this version: {error}")
    batch, hang = with_passthrough(job).batch, job.fault_tolerance.hang_minutes
    known = Expected(hang_s=None if hang is None else 60.0 * hang)
    tokens = batch.global_batch_size * batch.seq_length if batch.global_batch_size and batch.seq_length else None
    if job.runtime != "native" and job.hardware.device != _CPU:
        return replace(known, tokens=tokens, why="a rehearsal does not run on the job's hardware")
    try:
        answer = estimate(job)
    except CannotEstimate as error:
        return replace(known, tokens=tokens, why=str(error).splitlines()[0])
    if answer.time is None:
        return replace(known, tokens=tokens, why="the estimate has no time without hardware=NAME")
    return replace(known, tokens=tokens, step_s=answer.time.step_s, mfu=answer.mfu)
