"""Rows for evaluation."""

from collections.abc import Iterable, Mapping

from launcher.job import Job, Value
from launcher.mapping.rows import NativeView, Row, computed

# Evaluation interval in steps where none is set. Source: the default of core 0.12.1, arguments.py.
EVAL_INTERVAL, _EVAL_ITERS = 1000, 100


def evaluates(job: Job) -> bool:
    """Return whether the job sets an evaluation interval, evaluation steps or validation data."""
    asked = (job.evaluation.interval, job.evaluation.iters, job.data.validation_ratio)
    return any(asked) or bool(job.data.validation_paths)


def evaluation() -> tuple[Row, ...]:
    """Return the rows of evaluation."""
    return (
        computed(
            ("evaluation.interval",),
            ("eval-interval",),
            lambda job: (("eval-interval", job.evaluation.interval or EVAL_INTERVAL),),
            lambda view: {"evaluation.interval": view.take("eval-interval")} if view.has("eval-interval") else {},
            note="Without it 0.16 divides by None (megatron/training/training.py:3307); 1000 was the default before.",
        ),
        computed(
            ("evaluation.iters",),
            ("eval-iters",),
            _write_eval_iters,
            _read_eval_iters,
            note="No evaluation is set: none runs. Megatron's own default is 100 batches, also after the last step.",
        ),
    )


def _write_eval_iters(job: Job) -> Iterable[tuple[str, Value]]:
    if job.evaluation.iters is not None:
        yield "eval-iters", job.evaluation.iters
    elif not evaluates(job):
        yield "eval-iters", 0


def _read_eval_iters(view: NativeView) -> Mapping[str, Value]:
    if view.has("eval-iters"):
        return {"evaluation.iters": view.take("eval-iters")}
    asked = ("eval-interval", "valid-data-path", "valid-data-args-path", "data-args-path", "per-split-data-args-path")
    return {} if any(view.peek(flag) for flag in asked) else {"evaluation.iters": _EVAL_ITERS}
