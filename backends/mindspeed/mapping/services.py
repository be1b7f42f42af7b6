"""Rows for services that run beside training: profiler level, generation, thinking mode in chats."""

from collections.abc import Iterable, Mapping

from backends.megatron_lm.mapping.factories import chosen, when_given
from backends.megatron_lm.mapping.services import NO_CLIPPING
from launcher.job import Job, Value
from launcher.mapping.rows import Gap, NativeView, Row, switch


def profiler() -> Row:
    """Return the row of the level of CANN's profiler."""
    levels = {-1: "level_none", 0: "level0", 1: "level1", 2: "level2"}
    return chosen("profiler.level", "profile-level", levels)


def sparse_mode() -> Row:
    """Return the row of the sparse mode of CANN's fused attention."""
    return when_given("kernels.sparse_mode", "sparse-mode")


def generation(is_old: bool) -> tuple[Row, ...]:
    """Return the rows of text generation, read by inference.py (and the PPO trainer of 2.1.0)."""
    names = ("max_length", "max_new_tokens", "temperature", "top_k", "top_p")
    rows = (when_given(f"generation.{name}", name.replace("_", "-")) for name in names)
    return (*rows, *((switch("generation.do_sample", "do-sample"),) if is_old else ()))


def thinking() -> Row:
    """Return the row of thinking mode in chats; the parser accepts the strings true and false."""
    path, flag = "data.enable_thinking", "enable-thinking"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if job.data.enable_thinking is not None:
            yield flag, "true" if job.data.enable_thinking else "false"

    def read(view: NativeView) -> Mapping[str, Value]:
        words = {"true": True, "false": False, "none": None}
        given = str(view.peek(flag)).lower()
        if not view.has(flag) or given not in words:
            return {}
        view.take(flag)
        return {path: words[given]}

    return Row(fields=(path,), flags=(flag,), emit=emit, read=read, note="features_manager/dataset/dataset.py:19")


# Megatron rows without effect in MindSpeed-LLM: its training loop (training/training.py:587 @26.1.0) and its
# pretrain_gpt.py (:252) replace the code that reads their arguments.
_LOOP = "its own training loop reads no such argument; training is unaffected"
_FILES = "its pretrain_gpt.py reads the paths of the command line only"
UNREAD: Mapping[str, Gap] = {
    "schedule.sync_interval": Gap(why=_LOOP, severity="warning"),
    "logging.straggler.enabled": Gap(why=_LOOP, neutral=(False,), severity="warning"),
    "logging.straggler.at_start": Gap(why=_LOOP, neutral=(True, False), severity="warning"),
    "logging.straggler.port": Gap(why=_LOOP, severity="warning"),
    "logging.straggler.count": Gap(why=_LOOP, severity="warning"),
    "profiler.workload_inspector": Gap(why=_LOOP, neutral=(False,), severity="warning"),
    "fault_tolerance.ft_package": Gap(why=_LOOP, neutral=(False,), severity="warning"),
    "fault_tolerance.ft_timeouts": Gap(why=_LOOP, neutral=(False,), severity="warning"),
    "fault_tolerance.weight_hash_interval": Gap(why=_LOOP, severity="warning"),
    "checkpoint.non_persistent.save_interval": Gap(
        why="its own training loop writes one kind of checkpoints",
        severity="warning",
        works=("checkpoint.save_interval=100",),
    ),
    "data.paths_file": Gap(why=_FILES, works=("data.paths=[…]",)),
    "data.split_paths_file": Gap(why=_FILES, works=("data.paths=[…]",)),
    "data.object_storage_cache": Gap(why="it reads no token files of an object store"),
}
GAPS: Mapping[str, Gap] = {
    **NO_CLIPPING,
    **UNREAD,
    "task.reward_models": Gap(why="there is no GRPO trainer", works=("task.reward_models=[]",)),
}
OLD_GAPS: Mapping[str, Gap] = {
    "data.enable_thinking": Gap(why="it came with 26.1", works=("data.enable_thinking=null",)),
}
