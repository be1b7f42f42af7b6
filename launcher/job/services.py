"""Services that monitor a run: NVIDIA's One Logger, straggler detection and error injection."""

from launcher.job.option import option
from launcher.job.sources import ARGUMENTS
from launcher.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class OneLogger:
    """One Logger, NVIDIA's record of runs; it reports only where its package is installed."""

    enabled: bool | None = option(None, "Report to One Logger.", source=f"{ARGUMENTS} --no-one-logger")
    project: str | None = option(None, "Project of its records.", source=f"{ARGUMENTS} --one-logger-project")
    name: str | None = option(None, "Run of its records.", source=f"{ARGUMENTS} --one-logger-run-name")
    asynchronous: bool | None = option(None, "Report during training.", source=f"{ARGUMENTS} --one-logger-async")
    app_tag: str | None = option(
        None, "Tag that groups runs of one training.", source=f"{ARGUMENTS} --app-tag-run-name"
    )
    app_version: str | None = option(None, "Version of that tag.", source=f"{ARGUMENTS} --app-tag-run-version")


@dataclass(frozen=True, slots=True, kw_only=True)
class Straggler:
    """Straggler detection: devices that compute more slowly than the others."""

    enabled: bool | None = option(
        None, "Measure every rank and log the slowest and fastest.", source=f"{ARGUMENTS} --log-straggler"
    )
    at_start: bool | None = option(
        None, "Measure from the first step, not only on request.", source=f"{ARGUMENTS} --disable-straggler-on-startup"
    )
    port: int | None = option(
        None, "Port that controls the measurement.", source=f"{ARGUMENTS} --straggler-ctrlr-port", minimum=0
    )
    count: int | None = option(
        None, "Number of ranks listed at either end.", source=f"{ARGUMENTS} --straggler-minmax-count", minimum=1
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorInjection:
    """Error injection: wrong results, to test whether fault_tolerance.rerun detects them."""

    rate: int | None = option(
        None, "One wrong result in this many; 0: none.", source=f"{ARGUMENTS} --error-injection-rate", minimum=0
    )
    type: str | None = option(
        None,
        "Kind of the wrong result.",
        source=f"{ARGUMENTS} --error-injection-type",
        choices=("correct_result", "transient_error", "persistent_error"),
    )
