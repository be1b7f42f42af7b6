"""Draws how far each training is from the reference, iteration by iteration."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from launcher.parity.compare import relative
from launcher.parity.runs import Trained

PLOT = "parity.png"
_LEAST = 1e-9  # equal values have no place on a logarithmic axis


def draw(folder: Path, trained: Sequence[Trained], tolerance: Mapping[int, tuple[float, float]]) -> Path | None:
    """Draw relative differences of the loss and their tolerance; None where matplotlib is missing or nothing ran."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator
    except ImportError:
        return None
    reference = {each.iteration: each.loss for each in trained[0].iterations}
    if not reference or len(trained) < 2:
        return None
    figure = Figure(figsize=(8, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for side in trained[1:]:
        pairs = [(each.iteration, each.loss) for each in side.iterations if each.iteration in reference]
        values = [max(relative(reference[number], loss), _LEAST) for number, loss in pairs]
        axes.plot([number for number, _ in pairs], values, marker="o", markersize=3, linewidth=1.6, label=side.label)
    limits = sorted(tolerance.items())
    axes.plot(
        [number for number, _ in limits],
        [loss for _, (loss, _) in limits],
        color="0.6",
        dashes=(4, 2),
        label="tolerance",
    )
    axes.set_yscale("log")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("iteration")
    axes.set_ylabel("relative difference of the loss")
    axes.set_title(f"difference from {trained[0].label}", fontsize=10)
    axes.legend(frameon=False)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(folder / PLOT, dpi=120)
    return folder / PLOT
