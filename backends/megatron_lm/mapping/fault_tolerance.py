"""Rows for fault detection and handling, error injection and NVIDIA's services that restart a job."""

from collections.abc import Mapping

from backends.megatron_lm.mapping.factories import ONLY_NVIDIA_CLUSTERS, added_in_0_9, when_set
from launcher.mapping.rows import Gap, Row, switch, switch_off, warning


def timeout() -> Row:
    """Return the row of the time-out of collective operations."""
    return when_set("fault_tolerance.timeout_minutes", "distributed-timeout-minutes")


def fault_tolerance() -> tuple[Row, ...]:
    """Return the rows of fault checks, signals, error injection and services that restart a job."""
    return (
        switch_off("fault_tolerance.check_for_nan", "no-check-for-nan-in-loss-and-grad"),
        switch("fault_tolerance.check_for_spiky_loss", "check-for-spiky-loss", since="0.12"),
        switch("fault_tolerance.check_for_large_grads", "check-for-large-grads", since="0.12"),
        when_set("fault_tolerance.rerun", "rerun-mode", since="0.12"),
        when_set("fault_tolerance.weight_hash_interval", "check-weight-hash-across-dp-replicas-interval"),
        switch("fault_tolerance.exit_on_signal", "exit-signal-handler"),
        when_set("fault_tolerance.rejected_results", "result-rejected-tracker-filename", since="0.12"),
        when_set("fault_tolerance.error_injection.rate", "error-injection-rate", since="0.12"),
        when_set("fault_tolerance.error_injection.type", "error-injection-type", since="0.12"),
        switch("fault_tolerance.test_mode", "test-mode"),
        switch("fault_tolerance.ft_package", "enable-ft-package", since="0.12"),
        switch("fault_tolerance.ft_timeouts", "calc-ft-timeouts", since="0.12"),
        switch("fault_tolerance.autoresume", "adlr-autoresume"),
        when_set("fault_tolerance.autoresume_interval", "adlr-autoresume-interval"),
    )


BEFORE_0_12: Mapping[str, Gap] = {
    "fault_tolerance.rejected_results": added_in_0_9(severity="warning"),
    "fault_tolerance.error_injection.rate": added_in_0_9(0, severity="warning"),
    "fault_tolerance.error_injection.type": added_in_0_9(severity="warning"),
    "fault_tolerance.ft_package": added_in_0_9(False, severity="warning"),
    "fault_tolerance.ft_timeouts": added_in_0_9(False, severity="warning"),
}
WITHOUT_MEGATRON_LOOP: Mapping[str, Gap] = {
    "fault_tolerance.rejected_results": warning("it does not repeat steps"),
    "fault_tolerance.error_injection.rate": warning("it does not repeat steps", 0),
    "fault_tolerance.error_injection.type": warning("it does not repeat steps"),
    "fault_tolerance.test_mode": warning("it does not compare weights over ranks", False),
    "fault_tolerance.ft_package": warning(ONLY_NVIDIA_CLUSTERS, False),
    "fault_tolerance.ft_timeouts": warning(ONLY_NVIDIA_CLUSTERS, False),
    "fault_tolerance.autoresume": warning(ONLY_NVIDIA_CLUSTERS, False),
    "fault_tolerance.autoresume_interval": warning(ONLY_NVIDIA_CLUSTERS),
}
