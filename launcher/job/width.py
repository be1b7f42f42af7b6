"""Megatron-LM's default FFN size of dense layers."""


def megatron_width(hidden: int, *, gated: bool) -> int:
    """Return the default ffn_hidden_size of dense layers: Megatron-LM arguments.py:797 @core_v0.16.1."""
    return int(4 * hidden * 2 / 3 / 64) * 64 if gated else 4 * hidden
