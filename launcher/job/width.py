"""The width that Megatron-LM gives a dense network whose script does not say one."""


def megatron_width(hidden: int, *, gated: bool) -> int:
    """Return the width of a dense network that is not given: Megatron-LM arguments.py:797 @core_v0.16.1."""
    return int(4 * hidden * 2 / 3 / 64) * 64 if gated else 4 * hidden
