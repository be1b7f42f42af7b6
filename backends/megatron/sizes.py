"""Sizes that ms-swift derives from others."""

from backends.megatron.versions import catalogue
from backends.megatron_lm import sizes
from launcher.job.model import Model


def default_ffn_size(model: Model, version: str) -> int | None:
    """Return the FFN size of dense layers without --ffn_hidden_size; since 4.0 config.json has it."""
    return sizes.default_ffn_size(model, version) if catalogue(version).get("ffn_hidden_size") is not None else None
