"""MindSpeed-LLM mapping rows for the profiler."""

from backends.megatron_lm.mapping.factories import chosen, when_set
from launcher.mapping.rows import Row, switch


def profiler() -> tuple[Row, ...]:
    """Return the rows of the profiler."""
    return (
        switch("profiler.enabled", "profile"),
        when_set("profiler.path", "profile-save-path"),
    )


def profiler_level() -> Row:
    """Return the row of the level of CANN's profiler."""
    levels = {-1: "level_none", 0: "level0", 1: "level1", 2: "level2"}
    return chosen("profiler.level", "profile-level", levels)
