"""Rows for services that run beside training: One Logger, straggler detection, fault checks, path files."""

from collections.abc import Mapping

from backends.megatron_lm.mapping.factories import when_given
from launcher.job import Value
from launcher.mapping.rows import Gap, NativeView, Row, switch, switch_off


def schedule() -> tuple[Row, ...]:
    """Return the rows of the training loop: batch size adjustment, evaluation only, device synchronization."""
    return (
        switch("batch.decrease_batch_size_if_needed", "decrease-batch-size-if-needed", since="0.12"),
        switch("schedule.skip_train", "skip-train"),
        when_given("schedule.sync_interval", "train-sync-interval", since="0.12"),
        switch_off("kernels.manual_gc_eval", "no-manual-gc-eval"),
    )


def clipping() -> tuple[Row, ...]:
    """Return the rows of QK clipping."""
    since = "0.16"
    return (
        switch("optimizer.qk_clip", "qk-clip", since=since),
        when_given("optimizer.qk_clip_alpha", "qk-clip-alpha", since=since),
        when_given("optimizer.qk_clip_threshold", "qk-clip-threshold", since=since),
    )


def lengths() -> Row:
    """Return the row that reads sizes of an encoder without a decoder as those of the language model.

    Source: megatron/training/arguments.py:787-793, :822-827 @core_v0.16.1.
    """

    def read(view: NativeView) -> Mapping[str, Value]:
        for old, new in (("encoder-num-layers", "num-layers"), ("encoder-seq-length", "seq-length")):
            if view.has(old) and new not in view.values:
                view.values[new] = view.take(old)
        return {}

    note = "--encoder-num-layers and --encoder-seq-length set what --num-layers and --seq-length do."
    return Row(fields=(), flags=(), emit=lambda job: (), read=read, note=note)


def data() -> tuple[Row, ...]:
    """Return the rows of path files for each split, and of the object storage cache for token file indices."""
    path = "data.object_storage_cache"
    return (
        when_given("data.split_paths_file", "per-split-data-args-path", since="0.12"),
        when_given(path, "object-storage-cache-path", since="0.16"),
        when_given(path, "s3-cache-path", until="0.15.9"),
    )


def logging() -> tuple[Row, ...]:
    """Return the rows of One Logger, straggler detection and timers."""
    one, slow = "logging.one_logger.", "logging.straggler."
    return (
        switch_off("logging.timer_barrier", "no-barrier-with-level-1-timing"),
        when_given("logging.config_dir", "config-logger-dir", since="0.12"),
        switch_off(f"{one}enabled", "no-one-logger"),
        when_given(f"{one}project", "one-logger-project"),
        when_given(f"{one}name", "one-logger-run-name"),
        switch(f"{one}asynchronous", "one-logger-async"),
        when_given(f"{one}app_tag", "app-tag-run-name"),
        when_given(f"{one}app_version", "app-tag-run-version"),
        switch(f"{slow}enabled", "log-straggler"),
        switch_off(f"{slow}at_start", "disable-straggler-on-startup"),
        when_given(f"{slow}port", "straggler-ctrlr-port"),
        when_given(f"{slow}count", "straggler-minmax-count"),
        switch("profiler.workload_inspector", "run-workload-inspector-server", since="0.12"),
    )


def faults() -> tuple[Row, ...]:
    """Return the rows of fault checks, error injection and NVIDIA's services that restart a job."""
    return (
        when_given("fault_tolerance.rejected_results", "result-rejected-tracker-filename", since="0.12"),
        when_given("fault_tolerance.error_injection.rate", "error-injection-rate", since="0.12"),
        when_given("fault_tolerance.error_injection.type", "error-injection-type", since="0.12"),
        switch("fault_tolerance.test_mode", "test-mode"),
        switch("fault_tolerance.ft_package", "enable-ft-package", since="0.12"),
        switch("fault_tolerance.ft_timeouts", "calc-ft-timeouts", since="0.12"),
        switch("fault_tolerance.autoresume", "adlr-autoresume"),
        when_given("fault_tolerance.autoresume_interval", "adlr-autoresume-interval"),
    )


def _told(why: str, *neutral: Value) -> Gap:
    return Gap(why=why, neutral=neutral, severity="warning")


def _clipping(why: str, *works: str) -> Mapping[str, Gap]:
    """Return the gaps of QK clipping; its numbers apply only where it is enabled."""
    numbers = Gap(why=why, works=works, matters=lambda job: bool(job.optimizer.qk_clip))
    return {
        "optimizer.qk_clip": Gap(why=why, neutral=(False,), works=works or ("optimizer.qk_clip=false",)),
        "optimizer.qk_clip_alpha": numbers,
        "optimizer.qk_clip_threshold": numbers,
    }


BEFORE_0_16 = _clipping("it came with core 0.16", "backend.version=0.16.1")
NO_CLIPPING = _clipping("attention weights are not shrunk")
_CHAT = "chats are written by the chat template of the tokenizer"
GAPS: Mapping[str, Gap] = {
    "data.enable_thinking": Gap(why=_CHAT),
    "data.shuffle_buffer_size": Gap(
        why="token files are shuffled as a whole",
        works=("data.shuffle_buffer_size=null",),
        matters=lambda job: bool(job.data.streaming),
    ),
    "kernels.sparse_mode": Gap(
        why="an option of CANN's attention kernel", neutral=(0, 2), works=("model.sliding_window=4096",)
    ),
    "profiler.level": _told("a level of Ascend's profiler"),
    "task.reward_models": Gap(why="Megatron-LM has no GRPO here", works=("task.reward_models=[]",)),
}

_LATER = "it came with Megatron core 0.9 or later"
# Fields that the oldest base, core 0.8, lacks.
BEFORE_0_12: Mapping[str, Gap] = {
    "batch.decrease_batch_size_if_needed": Gap(why=_LATER, neutral=(False,)),
    "data.split_paths_file": Gap(why=_LATER),
    "schedule.sync_interval": _told(_LATER),
    "logging.config_dir": _told(_LATER),
    "profiler.workload_inspector": _told(_LATER, False),
    "fault_tolerance.rejected_results": _told(_LATER),
    "fault_tolerance.error_injection.rate": _told(_LATER, 0),
    "fault_tolerance.error_injection.type": _told(_LATER),
    "fault_tolerance.ft_package": _told(_LATER, False),
    "fault_tolerance.ft_timeouts": _told(_LATER, False),
}

# For backends that do not take Megatron-LM's arguments.
_SERVICE = "a service of Megatron-LM's own loop; training is unaffected"
_NVIDIA = "a service of NVIDIA's clusters; training is unaffected"
OTHER_BACKENDS_ONLY: Mapping[str, Gap] = {
    "schedule.sync_interval": _told(_SERVICE),
    "kernels.manual_gc_eval": _told("it has no such switch; training is unaffected", True),
    "logging.timer_barrier": _told(_SERVICE, True),
    "logging.config_dir": _told(_SERVICE),
    **{
        f"logging.straggler.{name}": _told("it does not search for slow devices", *neutral)
        for name, neutral in {"enabled": (False,), "at_start": (True, False), "port": (), "count": ()}.items()
    },
    **{
        f"logging.one_logger.{name}": _told(_NVIDIA, *neutral)
        for name, neutral in {
            "enabled": (False,),
            "project": (),
            "name": (),
            "asynchronous": (False,),
            "app_tag": (),
            "app_version": (),
        }.items()
    },
    "profiler.workload_inspector": _told(_SERVICE, False),
    "fault_tolerance.rejected_results": _told("it does not repeat steps"),
    "fault_tolerance.error_injection.rate": _told("it does not repeat steps", 0),
    "fault_tolerance.error_injection.type": _told("it does not repeat steps"),
    "fault_tolerance.test_mode": _told("it does not compare weights over ranks", False),
    "fault_tolerance.ft_package": _told(_NVIDIA, False),
    "fault_tolerance.ft_timeouts": _told(_NVIDIA, False),
    "fault_tolerance.autoresume": _told(_NVIDIA, False),
    "fault_tolerance.autoresume_interval": _told(_NVIDIA),
    "schedule.skip_train": Gap(why="it trains", neutral=(False,), works=("schedule.skip_train=false",)),
    "batch.decrease_batch_size_if_needed": Gap(
        why="the processes must divide the global batch", neutral=(False,), works=("batch.global_batch_size=…",)
    ),
    "data.split_paths_file": Gap(why="data sets are named in the job", works=("data.paths=[…]",)),
}
