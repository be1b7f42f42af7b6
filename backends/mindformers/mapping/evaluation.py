"""Rows of evaluation, which files of legacy models configure although it is disabled (`do_eval: false`)."""

from collections.abc import Callable, Iterable, Mapping

from backends.mindformers.mapping.legacy import older
from backends.mindformers.mapping.loader import RECORDS, TYPE, data_format
from backends.mindformers.mapping.support import frozen
from launcher.job import Job, Value, value_at
from launcher.mapping.rows import NativeView, Row, same

_EVALUATES, _STEPS, _EPOCHS = "do_eval", "eval_step_interval", "eval_epoch_interval"
_NEVER = -1
_TRAINING = "train_dataset."
# The section and its copy; in a file the second is a YAML alias of the first.
_SECTIONS = ("eval_dataset.", "eval_dataset_task.dataset_config.")
_EVALUATION_ONLY = {
    "evaluation.shuffle": "data_loader.shuffle",
    "evaluation.drop_last": "drop_remainder",
    "evaluation.columns": "input_columns",
}
_PLACE = "data_loader.dataset_dir"
# Settings that both data sets share.
_SHARED = {
    "data.num_workers": "num_parallel_workers",
    "data.worker_processes": "python_multiprocessing",
    "data.repeat": "repeat",
    "data.numa": "numa_enable",
    "data.prefetch": "prefetch_size",
}


def _no_evaluation() -> Row:
    path = "evaluation.iters"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if job.evaluation.iters == 0:
            yield _EVALUATES, False

    def read(view: NativeView) -> Mapping[str, Value]:
        if view.peek(_EVALUATES, False) is not False:
            return {}
        view.take(_EVALUATES)
        return {path: 0}

    note = "false: no evaluation, the default of a file without it (tools/register/template.py @2.1.0)"
    return Row(fields=(path,), flags=(_EVALUATES,), emit=emit, read=read, note=note)


def _intervals() -> Row:
    fields = ("evaluation.interval", "evaluation.epochs")

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        given = [value_at(job, path) for path in fields]
        if job.evaluation.iters == 0 and any(given):
            yield _STEPS, given[0] or _NEVER
            yield _EPOCHS, given[1] or _NEVER

    def read(view: NativeView) -> Mapping[str, Value]:
        written = [view.peek(flag) for flag in (_STEPS, _EPOCHS)]
        counts = [value for value in written if type(value) is int and (value > 0 or value == _NEVER)]
        if view.peek(_EVALUATES, False) is not False or len(counts) < 2 or counts == [_NEVER, _NEVER]:
            return {}
        taken = [view.take(flag) for flag in (_STEPS, _EPOCHS)]
        return {path: None if value == _NEVER else value for path, value in zip(fields, taken, strict=True)}

    note = "-1: not after steps, or not after passes (trainer/base_trainer.py:1176 @1.6.0); read while do_eval is true"
    return Row(fields=fields, flags=(_STEPS, _EPOCHS), emit=emit, read=read, note=note)


def _described(job: Job) -> bool:
    """Return whether evaluation data is configured while evaluation is disabled."""
    return job.evaluation.iters == 0 and any(value_at(job, path) not in (None, ()) for path in _EVALUATION_ONLY)


def _evaluation(view: NativeView) -> bool:
    return view.peek(_EVALUATES, False) is False


def _in_sections(
    path: str, name: str, value: Callable[[Job], Value], accept: Callable[[NativeView, Value], bool]
) -> Row:
    """Return the row of one setting in both sections; read if they agree and the value is accepted."""
    flags = tuple(f"{section}{name}" for section in _SECTIONS)

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        written = value(job)
        if written not in (None, ()):
            yield from ((flag, written) for flag in flags)

    def read(view: NativeView) -> Mapping[str, Value]:
        given = [flag for flag in flags if view.has(flag)]
        values = [frozen(view.peek(flag)) for flag in given]
        equal = all(type(each) is type(values[0]) and each == values[0] for each in values)
        if not given or not _evaluation(view) or not equal or not accept(view, values[0]):
            return {}
        for flag in given:
            view.take(flag)
        return {path: values[0]} if path in _EVALUATION_ONLY else {path: (values[0],)} if name == _PLACE else {}

    return Row(fields=(path,), flags=flags, emit=emit, read=read, when=_described)


def _evaluation_only(path: str, name: str) -> Row:
    kind = tuple if path == "evaluation.columns" else bool
    return _in_sections(path, name, lambda job: value_at(job, path), lambda view, value: type(value) is kind)


def _shared(path: str, name: str) -> Row:
    """Return the row of a setting that evaluation shares with training; a different value has no field."""

    def accept(view: NativeView, value: Value) -> bool:
        given = view.peek(f"{_TRAINING}{name}")
        return f"{_TRAINING}{name}" in view.taken and type(value) is type(given) and bool(value == given)

    return _in_sections(path, name, lambda job: value_at(job, path), accept)


def _loader() -> Row:
    def accept(view: NativeView, value: Value) -> bool:
        return value == RECORDS == view.peek(TYPE) and TYPE in view.taken

    return _in_sections(
        "data.format",
        TYPE.removeprefix(_TRAINING),
        lambda job: RECORDS if data_format(job) == "mindrecord" else None,
        accept,
    )


def _place() -> Row:
    def value(job: Job) -> Value:
        return job.data.validation_paths[0] if len(job.data.validation_paths) == 1 else None

    return _in_sections(
        "data.validation_paths", _PLACE, value, lambda view, given: isinstance(given, str) and bool(given)
    )


def evaluation_rows() -> tuple[Row, ...]:
    """Return the rows of evaluation in files of legacy models: switch, intervals and data."""
    return (
        older(_no_evaluation()),
        older(_intervals()),
        same("evaluation.metric", "metric.type"),
        older(_loader()),
        older(_place()),
        *(older(_evaluation_only(path, name)) for path, name in _EVALUATION_ONLY.items()),
        *(older(_shared(path, name)) for path, name in _SHARED.items()),
    )
