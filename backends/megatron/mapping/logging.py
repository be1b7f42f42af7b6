"""Rows for logs and time-outs that differ from Megatron-LM's."""

from collections.abc import Iterable, Mapping

from backends.megatron.mapping.factories import FOUR, THREE, as_values, explicit
from launcher.job import Job, Value
from launcher.mapping.rows import NativeView, Row, mapped, same


def rows() -> Mapping[str, tuple[Row, ...]]:
    """Return the rows by the canonical field whose Megatron-LM rows they replace."""
    return {
        "logging.interval": (
            explicit("logging.interval", "log_interval", 5, until=THREE),
            explicit("logging.interval", "logging_steps", 5, since=FOUR),
        ),
        "logging.wandb_project": (same("logging.wandb_project", "wandb_project", until="3.9"), _wandb()),
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


def _wandb() -> Row:
    """Events go to W&B only when `report_to` names it; TensorBoard stays on."""
    reports = ("tensorboard", "wandb")

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if job.logging.wandb_project is not None:
            yield "report_to", reports
            yield "wandb_project", job.logging.wandb_project

    def read(view: NativeView) -> Mapping[str, Value]:
        if tuple(sorted(as_values(view.peek("report_to", ())))) != reports:
            return {}
        view.take("report_to")
        return {"logging.wandb_project": view.take("wandb_project", "megatron-swift")}

    return Row(
        fields=("logging.wandb_project",),
        flags=("report_to", "wandb_project"),
        emit=emit,
        read=read,
        since="3.10",
    )
