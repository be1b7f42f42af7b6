"""What Megatron-SWIFT keeps and does otherwise than Megatron-LM."""

from backends.megatron_lm.profile import ROWS
from launcher.mapping.stack_figure import StackFigure

_OWN = (
    StackFigure(
        name="cuda_graphs",
        value=False,
        source="no option for them in ms-swift 4.0.0 and earlier; 4.6.0 has cuda_graph_impl (their catalogues)",
        until="4.5.99",
    ),
)


def rows() -> tuple[StackFigure, ...]:
    """Return Megatron-SWIFT's differences."""
    return (*ROWS, *_OWN)
