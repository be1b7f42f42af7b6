"""Rows for logs and time-outs that differ from Megatron-LM's."""

from collections.abc import Iterable, Mapping

from backends.megatron.mapping.factories import FOUR, THREE, as_values, explicit
from launcher.job import Job, Value, value_at
from launcher.mapping.rows import NativeView, Row, Unsupported, mapped, same


def rows() -> Mapping[str, tuple[Row, ...]]:
    """Return the rows by the canonical field whose Megatron-LM rows they replace."""
    return {
        "logging.interval": (
            explicit("logging.interval", "log_interval", 5, until=THREE),
            explicit("logging.interval", "logging_steps", 5, since=FOUR),
        ),
        "logging.wandb_project": (
            same("logging.wandb_project", "wandb_project", until="3.9"),
            _one_tracker(since="3.10", until=THREE),
            _trackers(since=FOUR),
        ),
        "logging.wandb_name": (
            same("logging.wandb_name", "wandb_exp_name", until="3.9"),
            same("logging.wandb_name", "wandb_exp_name", since=FOUR),
            same("logging.swanlab_name", "swanlab_exp_name", since=FOUR),
        ),
        "logging.level": (mapped("logging.level", "logging_level", str, int, until=THREE),),
        "fault_tolerance.timeout_minutes": (_timeout(),),
    }


def _timeout() -> Row:
    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if job.fault_tolerance.timeout_minutes is not None:
            yield "ddp_timeout", job.fault_tolerance.timeout_minutes * 60

    def read(view: NativeView) -> Mapping[str, Value]:
        if not view.has("ddp_timeout") or view.peek("ddp_timeout") % 60:
            return {}
        return {"fault_tolerance.timeout_minutes": view.take("ddp_timeout") // 60}

    return Row(
        fields=("fault_tolerance.timeout_minutes",),
        flags=("ddp_timeout",),
        emit=emit,
        read=read,
        note="seconds; in 3.x it overrides distributed_timeout_minutes (megatron_args.py, __post_init__)",
    )


# Trackers in the order in which 4.x gets them, each with the option of its project, and their names of the 3.x line.
_PROJECTS = {"wandb": "logging.wandb_project", "swanlab": "logging.swanlab_project"}
_NAMES = {"wandb": "logging.wandb_name", "swanlab": "logging.swanlab_name"}
_DEFAULT_PROJECT = "megatron-swift"


def _trackers(*, since: str) -> Row:
    """Trackers get figures only where `report_to` names them, all of them beside TensorBoard.

    Source: ms-swift v4.0.0 megatron/arguments/megatron_args.py:464.
    """

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        chosen = [name for name, path in _PROJECTS.items() if value_at(job, path) is not None]
        if chosen:
            yield "report_to", ("tensorboard", *chosen)
        for name in chosen:
            yield f"{name}_project", value_at(job, _PROJECTS[name])

    def read(view: NativeView) -> Mapping[str, Value]:
        reports = as_values(view.peek("report_to", ()))
        chosen = [name for name in _PROJECTS if name in reports]
        if not chosen or sorted(reports) != sorted(["tensorboard", *chosen]):
            return {}
        view.take("report_to")
        return {_PROJECTS[name]: view.take(f"{name}_project", _DEFAULT_PROJECT) for name in chosen}

    return Row(
        fields=tuple(_PROJECTS.values()),
        flags=("report_to", *(f"{name}_project" for name in _PROJECTS)),
        emit=emit,
        read=read,
        since=since,
    )


def _one_tracker(*, since: str, until: str) -> Row:
    """One tracker beside TensorBoard; SwanLab has its project and run from W&B's options.

    Source: ms-swift v3.12.6 megatron/init.py:835-841 (_set_wandb_writer).
    """

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        chosen = [name for name, path in _PROJECTS.items() if value_at(job, path) is not None]
        if len(chosen) > 1:
            path = _PROJECTS["swanlab"]
            raise Unsupported(
                path, "report_to takes one of wandb and swanlab", tuple(f"{p}=null" for p in _PROJECTS.values())
            )
        name = chosen[0] if chosen else "wandb"
        if chosen:
            yield "report_to", name
            yield "wandb_project", value_at(job, _PROJECTS[name])
        if value_at(job, _NAMES[name]) is not None:
            yield "wandb_exp_name", value_at(job, _NAMES[name])

    def read(view: NativeView) -> Mapping[str, Value]:
        name = str(view.peek("report_to") or "")
        found: dict[str, Value] = {}
        if name in _PROJECTS:
            view.take("report_to")
            found[_PROJECTS[name]] = view.take("wandb_project", _DEFAULT_PROJECT)
        if view.has("wandb_exp_name"):
            found[_NAMES.get(name, _NAMES["wandb"])] = view.take("wandb_exp_name")
        return found

    return Row(
        fields=(*_PROJECTS.values(), *_NAMES.values()),
        flags=("report_to", "wandb_project", "wandb_exp_name"),
        emit=emit,
        read=read,
        since=since,
        until=until,
    )
