"""Draws how far each training is from the reference, iteration by iteration."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from launcher.parity.compare import QUANTITIES, Compared, Difference

PLOT = "parity.png"
_LEAST = 1e-9  # equal values have no place on a logarithmic axis


def draw(folder: Path, reference: str, compared: Sequence[Compared]) -> Path | None:
    """Draw relative differences of each quantity and their tolerance; None without matplotlib or anything to draw.

    Args:
        reference: label of the training that the others are compared with.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return None
    if not any(each.differences for each in compared):
        return None
    figure = Figure(figsize=(11, 4), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, quantity in zip(figure.subplots(1, len(QUANTITIES)), QUANTITIES, strict=True):
        _panel(axes, quantity, compared)
    figure.suptitle(f"difference from {reference}", fontsize=10)
    figure.savefig(folder / PLOT, dpi=120)
    return folder / PLOT


def _panel(axes: Any, quantity: str, compared: Sequence[Compared]) -> None:
    from matplotlib.ticker import MaxNLocator

    limits: dict[tuple[float, ...], list[Difference]] = {}  # sides with one tolerance share its line
    for side in compared:
        own = [each for each in side.differences if each.quantity == quantity]
        shown = [each for each in own if math.isfinite(each.relative)]
        values = [max(each.relative, _LEAST) for each in shown]
        numbers = [each.iteration for each in shown]
        (line,) = axes.plot(numbers, values, marker="o", markersize=3, linewidth=1.6, label=side.label)
        for each in own:
            if not math.isfinite(each.relative):
                axes.axvline(each.iteration, color=line.get_color(), linewidth=0.8, label=f"{side.label}: not finite")
                break
        if own:
            limits.setdefault(tuple(each.tolerance for each in own), own)
    for number, own in enumerate(limits.values()):
        label = "" if number else "tolerance"
        line_of = {"color": "0.6", "dashes": (4, 2), "label": label}
        axes.plot([each.iteration for each in own], [each.tolerance for each in own], **line_of)
    if not limits:
        axes.text(0.5, 0.5, "not reported", transform=axes.transAxes, ha="center")
    axes.set_yscale("log")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("iteration")
    axes.set_ylabel(f"relative difference of the {QUANTITIES[quantity]}")
    axes.legend(frameon=False)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
