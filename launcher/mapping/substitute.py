"""What a backend does in place of values that a job written for another backend has and that it cannot take."""

from collections.abc import Callable, Iterator, Mapping

from launcher.job import Job, Value, value_at
from launcher.records import dataclass

ENVIRONMENT = "backend.env."


@dataclass(frozen=True, slots=True, kw_only=True)
class Substitute:
    """A row of a backend's table of substitutes.

    Attributes:
        fields: fields whose values have no equivalent, or environment variables (`backend.env.NAME`); the first names
            the row.
        when: whether the job has such values, and the substitute is the nearest there.
        put: the fields that change and their values there; a variable that is None is not set by the job.
        why: what the target does instead.
        affects_training: training is no longer exactly the same; reported as a warning.
    """

    fields: tuple[str, ...]
    when: Callable[[Job], bool]
    put: Callable[[Job], Mapping[str, Value]]
    why: str
    affects_training: bool = False


def without(field: str, when: Callable[[Job], bool], why: str, *, affects_training: bool = False) -> Substitute:
    """Return the row of a field that is left to the backend."""
    empty: Value = () if field in ("offload.modules",) else None
    return Substitute(
        fields=(field,), when=when, put=lambda job: {field: empty}, why=why, affects_training=affects_training
    )


def without_variable(name: str, when: Callable[[Job, str], bool], why: str) -> Substitute:
    """Return the row of an environment variable that is left to the backend.

    Args:
        when: whether a job cannot have this text of the variable.
    """
    return Substitute(
        fields=(ENVIRONMENT + name,),
        when=lambda job: name in job.backend.env and when(job, str(job.backend.env[name])),
        put=lambda job: {ENVIRONMENT + name: None},
        why=why,
    )


def without_each(fields: str, why: str, *, neutral: tuple[Value, ...] = ()) -> Iterator[Substitute]:
    """Yield the rows of fields that are left to the backend, with an effect on training, unless they are neutral.

    Args:
        fields: paths, separated by blanks.
    """
    for path in fields.split():
        yield without(path, _has_other(path, (None, *neutral)), why, affects_training=True)


def _has_other(path: str, values: tuple[Value, ...]) -> Callable[[Job], bool]:
    return lambda job: value_at(job, path) not in values


def positive_seed() -> Substitute:
    """Return the row of the seed 0, with which Megatron-LM's and mcore-bridge's initialisation ends in an error."""
    return Substitute(
        fields=("seed",),
        when=lambda job: job.seed == 0,
        put=lambda job: {"seed": 1},
        why="its seeds are positive (megatron/training/initialize.py:427 @core_v0.16.1)",
        affects_training=True,
    )


def alltoall_for_alltoall_seq() -> Substitute:
    """Return the row of the token dispatcher `alltoall_seq`, which MindSpeed alone has: the others have `alltoall`."""
    return Substitute(
        fields=("moe.token_dispatcher_type",),
        when=lambda job: job.moe.token_dispatcher_type == "alltoall_seq",
        put=lambda job: {"moe.token_dispatcher_type": "alltoall"},
        why="the same tokens go to the same experts, in another order of communication",
    )


def alltoall_for_other_dispatchers(why: str, *kinds: str) -> Substitute:
    """Return the row of token dispatchers that a backend lacks whose only one is `alltoall`.

    Args:
        why: why it has no other.
        kinds: the dispatchers that it lacks.
    """
    return Substitute(
        fields=("moe.token_dispatcher_type",),
        when=lambda job: job.moe.token_dispatcher_type in kinds,
        put=lambda job: {"moe.token_dispatcher_type": "alltoall"},
        why=f"{why}; alltoall gives the same result",
    )


def runs_of_the_job() -> Iterator[Substitute]:
    """Yield the rows of what a checkpoint or a clock decides of a run, where the job alone does."""
    yield from without_each(
        "checkpoint.load_schedule", "the schedule is the job's, not that of the checkpoint", neutral=(False,)
    )
    yield from without_each(
        "checkpoint.load_arguments",
        "the model's sizes are those of its configuration, not of the checkpoint",
        neutral=(False,),
    )
    yield from without_each(
        "schedule.exit_interval schedule.exit_minutes",
        "a run ends with its training: to end it earlier, give it fewer steps",
    )


def steps_of_epochs() -> Substitute:
    """Return the row of several epochs of a stated number of samples (MindFormers' `sizes` and `epochs`).

    An epoch is its whole batches: each drops the samples that are left over (`drop_remainder`).
    """

    def steps(job: Job) -> int:
        return max(1, int((job.schedule.epochs or 1) * (_samples(job) // (job.batch.global_batch_size or 1))))

    return Substitute(
        fields=("schedule.epochs", "schedule.train_samples"),
        when=lambda job: job.schedule.epochs is not None and _samples(job) > 0 and bool(job.batch.global_batch_size),
        put=lambda job: {"schedule.epochs": None, "schedule.train_samples": None, "schedule.train_iters": steps(job)},
        why="the steps of these epochs of the stated samples; the order of samples in later epochs may differ",
        affects_training=True,
    )


def _samples(job: Job) -> int:
    return job.schedule.train_samples or 0


def stages_without_empty_layers() -> Substitute:
    """Return the row of empty layers: the sizes of stages or chunks that they leave."""
    return Substitute(
        fields=("parallel.noop_layers",),
        when=lambda job: bool(job.parallel.noop_layers) and _chunks(job) is not None,
        put=_stage_sizes,
        why="stages and chunks have the same layers without empty ones between them",
    )


def _chunks(job: Job) -> list[int] | None:
    """Return the number of layers in each chunk, in their order; None where they do not divide."""
    layers, empty = job.model.num_hidden_layers, set(job.parallel.noop_layers)
    if layers is None:
        return None
    count = job.parallel.pp * (job.parallel.vpp or 1)
    size, rest = divmod(layers + len(empty), count)
    if rest:
        return None
    return [sum(start + each not in empty for each in range(size)) for start in range(0, count * size, size)]


def _stage_sizes(job: Job) -> Mapping[str, Value]:
    chunks = _chunks(job) or []
    inner = set(chunks[1:-1])
    if job.parallel.vpp in (None, 1) and len(chunks) == 2 and all(chunks):
        return {"parallel.noop_layers": (), "parallel.first_stage_layers": chunks[0]}
    if job.parallel.vpp in (None, 1) and len(inner) == 1 and all(chunks):
        first, last = (None if size in inner else size for size in (chunks[0], chunks[-1]))
        return {
            "parallel.noop_layers": (),
            "parallel.first_stage_layers": first,
            "parallel.last_stage_layers": last,
        }
    parts = ["t" * size if size < 2 else f"t*{size}" for size in chunks]
    parts[0] = f"E{parts[0]}"
    parts[-1] += "m" * (job.model.num_nextn_predict_layers or 0) + "L"
    return {"parallel.noop_layers": (), "parallel.layout": "|".join(parts)}
