"""The balanced split as values of a job, independent of its previous strategy."""

from __future__ import annotations

from launcher.balance.encode import Expressed
from launcher.balance.from_job import RECOMPUTED, UNEVEN, short_layout
from launcher.balance.solve_job import Answer
from launcher.job import Job, Value, value_at

# Fields that a split depends on. A file with them is independent of the job's previous strategy.
_HOLDS_FOR = (
    *(f"parallel.{name}" for name in ("tp", "pp", "vpp", "cp", "ep", "etp")),
    *("batch.micro_batch_size", "parallel.sequence_parallel", "parallel.distributed_optimizer"),
)


def strategy(answer: Answer) -> dict[str, Value] | None:
    """Return the values to write, with the layout that they are for; None: the backend cannot express the split."""
    if isinstance(answer.expressed, Expressed):
        job = answer.expressed.outcome.job
        return {path: value_at(job, path) for path in (*_HOLDS_FOR, *UNEVEN, *RECOMPUTED)}
    if answer.expressed is not None:
        return None
    layout = str(answer.job.parallel.layout)
    values: dict[str, Value] = {"parallel.layout": short_layout(layout)}
    given = {path: value_at(answer.job, path) for path in RECOMPUTED}
    return values | {path: value for path, value in given.items() if value != value_at(Job(), path)}
