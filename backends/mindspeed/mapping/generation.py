"""MindSpeed-LLM mapping rows for text generation."""

from backends.megatron_lm.mapping.factories import when_set
from launcher.mapping.rows import Row, switch


def generation(is_old: bool) -> tuple[Row, ...]:
    """Return the rows of text generation, read by inference.py (and the PPO trainer of 2.1.0)."""
    names = ("max_length", "max_new_tokens", "temperature", "top_k", "top_p")
    rows = (when_set(f"generation.{name}", name.replace("_", "-")) for name in names)
    return (*rows, *((switch("generation.do_sample", "do-sample"),) if is_old else ()))
