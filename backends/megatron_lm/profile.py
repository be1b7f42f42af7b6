"""What Megatron-LM keeps and does beyond Megatron-core: nothing. Stacks that extend it add a row per difference."""

from launcher.mapping.stack_figure import StackFigure

ROWS: tuple[StackFigure, ...] = ()


def rows() -> tuple[StackFigure, ...]:
    """Return Megatron-LM's differences."""
    return ROWS
