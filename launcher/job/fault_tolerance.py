"""Restarts, hang detection and injected faults."""

from launcher.job.option import option
from launcher.job.services import ErrorInjection
from launcher.job.sources import ARGUMENTS
from launcher.records import dataclass

# Read by the launcher itself, whatever the backend.
OF_LAUNCHER = tuple(
    f"fault_tolerance.{name}"
    for name in ("max_restarts", "restart_wait_seconds", "hang_minutes", "startup_minutes", "save_seconds")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultTolerance:
    """What happens when a rank fails or hangs."""

    max_restarts: int = option(
        0, "Restarts of all ranks, from the last complete checkpoint, after one fails or hangs.", minimum=0
    )
    restart_wait_seconds: float = option(
        10.0,
        "Wait before the first restart; each further one waits twice as long, at most six minutes.",
        unit="s",
        source="Kubernetes batch/v1 Job, pod back-off: 10 s, doubled up to six minutes",
        minimum=0,
    )
    hang_minutes: float | None = option(
        None,
        "Minutes without a new iteration in the log after which the ranks are ended as hung; none: never.",
        unit="minutes",
        minimum=0,
    )
    startup_minutes: float | None = option(
        None,
        "Minutes without a first iteration after which the ranks are ended as hung; none: three times hang_minutes and "
        "30 at least, and never without hang_minutes.",
        unit="minutes",
        minimum=0,
    )
    save_seconds: float | None = option(
        None,
        "With exit_on_signal: seconds that ranks have to write a checkpoint before they are ended; Slurm sends the "
        "signal so long before the time limit; none: 300.",
        unit="s",
        minimum=1,
    )
    timeout_minutes: int | None = option(
        None,
        "Collectives that take longer end the job.",
        unit="minutes",
        source=f"{ARGUMENTS} --distributed-timeout-minutes",
        minimum=1,
    )
    check_for_nan: bool | None = option(
        None,
        "Stop training if the loss or a gradient is NaN.",
        source=f"{ARGUMENTS} --no-check-for-nan-in-loss-and-grad",
    )
    check_for_spiky_loss: bool | None = option(
        None, "Treat a spike of the loss as a fault.", source=f"{ARGUMENTS} --check-for-spiky-loss"
    )
    check_for_large_grads: bool | None = option(
        None, "Treat a spike of a gradient as a fault.", source=f"{ARGUMENTS} --check-for-large-grads"
    )
    rerun: str | None = option(
        None,
        "Re-run of steps whose result is implausible.",
        source=f"{ARGUMENTS} --rerun-mode",
        choices=("disabled", "validate_results", "report_stats"),
    )
    rejected_results: str | None = option(
        None,
        "File of steps with results found wrong, which are rejected again.",
        source=f"{ARGUMENTS} --result-rejected-tracker-filename",
    )
    error_injection: ErrorInjection = ErrorInjection()
    test_mode: bool | None = option(
        None,
        "Compare the weights of query and key norms over the ranks in every step.",
        source=f"{ARGUMENTS} --test-mode",
    )
    ft_package: bool | None = option(
        None,
        "Heartbeats to NVIDIA's fault-tolerance package, which ends and restarts ranks that hang.",
        source=f"{ARGUMENTS} --enable-ft-package",
    )
    ft_timeouts: bool | None = option(
        None, "Let that package derive its time-outs from the run.", source=f"{ARGUMENTS} --calc-ft-timeouts"
    )
    autoresume: bool | None = option(
        None,
        "End and restart on request of the scheduler of NVIDIA's clusters.",
        source=f"{ARGUMENTS} --adlr-autoresume",
    )
    autoresume_interval: int | None = option(
        None,
        "Steps between queries to the scheduler.",
        unit="iterations",
        source=f"{ARGUMENTS} --adlr-autoresume-interval",
        minimum=1,
    )
    weight_hash_interval: int | None = option(
        None,
        "Steps between comparisons of the weights of data-parallel replicas.",
        unit="iterations",
        source=f"{ARGUMENTS} --check-weight-hash-across-dp-replicas-interval",
        minimum=1,
    )
    exit_on_signal: bool | None = option(
        None, "Write a checkpoint and end on SIGTERM.", source=f"{ARGUMENTS} --exit-signal-handler"
    )
