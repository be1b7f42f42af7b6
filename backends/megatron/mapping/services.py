"""Rows and gaps for generation, thinking in chats and streamed data; gaps for Megatron-LM's services."""

from collections.abc import Mapping

from backends.megatron.mapping.factories import FOUR
from backends.megatron_lm.mapping.factories import listed
from backends.megatron_lm.mapping.services import GAPS, NO_CLIPPING, OTHER_BACKENDS_ONLY
from launcher.catalogue.versions import in_range
from launcher.mapping.rows import Gap, Row, same

_DRAWN = ("temperature", "top_k", "top_p", "repetition_penalty", "max_new_tokens")
GENERATION = tuple(f"generation.{name}" for name in _DRAWN)
# First version with enable_thinking and GRPO.
_SINCE = "3.12"


def rows() -> tuple[Row, ...]:
    """Return the rows of generation for GRPO and GKD, and of data."""
    return (
        *(same(f"generation.{name}", name) for name in _DRAWN),
        listed("task.reward_models", "reward_model", since=_SINCE),
        same("data.enable_thinking", "enable_thinking", since=_SINCE),
        same("data.shuffle_buffer_size", "shuffle_buffer_size"),
        same("kernels.manual_gc_eval", "manual_gc_eval", since=FOUR),
    )


def gaps(version: str) -> Mapping[str, Gap]:
    """Return the fields of this module that a version does not support."""
    found = {
        **OTHER_BACKENDS_ONLY,
        **NO_CLIPPING,
        "kernels.sparse_mode": GAPS["kernels.sparse_mode"],
        "data.object_storage_cache": Gap(why="it has its own data sets, not Megatron's token files"),
    }
    if in_range(version, FOUR, None):
        del found["kernels.manual_gc_eval"]
    if not in_range(version, _SINCE, None):
        found["task.reward_models"] = Gap(why="this version has no GRPO", works=("task.reward_models=[]",))
        found["data.enable_thinking"] = Gap(why="chats of this version are written with thinking", neutral=(True,))
    return found


IRRELEVANT: Mapping[str, str] = {
    "profiler.level": "only with profiler.enabled, which it cannot express",
}
