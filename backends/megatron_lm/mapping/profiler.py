"""Rows for the profiler, the workload inspector and the device memory history."""

from collections.abc import Mapping

from backends.megatron_lm.mapping.factories import ONLY_MEGATRON_LOOP, added_in_0_9, listed, when_set
from launcher.job import Value
from launcher.mapping.rows import Gap, NativeView, Row, computed, switch, warning


def profiler() -> tuple[Row, ...]:
    """Return the rows of the profiler."""
    return (
        computed(
            ("profiler.enabled",),
            ("profile", "use-pytorch-profiler"),
            lambda job: (("profile", True), ("use-pytorch-profiler", True)) if job.profiler.enabled else (),
            _read_profile,
            note="Without --use-pytorch-profiler the steps are marked for Nsight Systems, and no trace is written.",
        ),
        when_set("profiler.start_step", "profile-step-start"),
        when_set("profiler.end_step", "profile-step-end"),
        listed("profiler.ranks", "profile-ranks"),
    )


def _read_profile(view: NativeView) -> Mapping[str, Value]:
    if not (view.has("profile") and view.has("use-pytorch-profiler")):
        return {}
    view.take("use-pytorch-profiler")
    return {"profiler.enabled": bool(view.take("profile"))}


def inspection() -> tuple[Row, ...]:
    """Return the rows of the workload inspector and the device memory history."""
    return (
        switch("profiler.workload_inspector", "run-workload-inspector-server", since="0.12"),
        switch("profiler.memory_history", "record-memory-history", since="0.12"),
        when_set("profiler.memory_snapshot_path", "memory-snapshot-path", since="0.12"),
    )


UNSUPPORTED: Mapping[str, Gap] = {
    "profiler.level": warning("a level of Ascend's profiler"),
    "profiler.path": warning("traces go to logging.tensorboard_dir", works=("logging.tensorboard_dir=…",)),
}
BEFORE_0_12: Mapping[str, Gap] = {
    "profiler.workload_inspector": added_in_0_9(False, severity="warning"),
    "profiler.memory_history": added_in_0_9(False, severity="warning"),
    "profiler.memory_snapshot_path": added_in_0_9(severity="warning"),
}
WITHOUT_MEGATRON_LOOP: Mapping[str, Gap] = {"profiler.workload_inspector": warning(ONLY_MEGATRON_LOOP, False)}
