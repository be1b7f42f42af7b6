"""`--plot FILE`: charts as a page (.html, plotly.js), or drawn by matplotlib (.svg, .png)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from launcher.outputs.files import write_output
from launcher.outputs.kinds import MARK, PICTURE
from launcher.report.figures import Chart
from launcher.report.page import Missing, charts_page

_INCH = 110.0  # pixels of a chart's height
_WIDTH = 10.0  # inches


def write_charts(path: Path, charts: Sequence[Chart], title: str) -> None:
    """Write charts, one below the other; the ending of the name chooses the form.

    Raises:
        Missing: a library of the extra `report` is not installed.
        OutputRefused: there is another file at this path.
    """
    if path.suffix in (".html", ".htm"):
        write_output(path, charts_page(charts, title), PICTURE)
        return
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise Missing("needs matplotlib") from None
    write_output(path, lambda temporary: _write(temporary, charts, title), PICTURE)


def _write(path: Path, charts: Sequence[Chart], title: str) -> None:
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    heights = [chart.layout["height"] / _INCH + 0.6 for chart in charts]
    figure = Figure(figsize=(_WIDTH, sum(heights) + 0.5), dpi=150, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title, x=0.01, ha="left", fontweight="bold")
    all_axes = figure.subplots(len(charts), squeeze=False, height_ratios=heights)[:, 0]
    for axes, chart in zip(all_axes, charts, strict=True):
        _draw(axes, chart)
    # Text stays text, so that it can be searched and edited; without a date, equal charts are equal files.
    metadata = {"Creator": MARK, "Date": None} if path.suffix == ".svg" else {"Software": MARK}
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": MARK}):
        figure.savefig(path, metadata=metadata)


def _draw(axes: Any, chart: Chart) -> None:
    axes.set_title(f"{chart.title}\n{chart.summary}", loc="left", fontsize=9)
    left: dict[Any, float] = {}
    for trace in chart.data:
        if trace["type"] == "bar":
            _bars(axes, trace, left, stacked=chart.layout.get("barmode") == "stack")
        else:
            _points(axes, trace)
    x, y = chart.layout["xaxis"], chart.layout["yaxis"]
    axes.set_xlabel(x.get("title", {}).get("text", ""), fontsize=8)
    axes.set_ylabel(y.get("title", {}).get("text", ""), fontsize=8)
    axes.tick_params(labelsize=8)
    if "range" in x:
        axes.set_xlim(*x["range"])
    if y.get("autorange") == "reversed":
        axes.invert_yaxis()
    elif "range" in y:
        axes.set_ylim(*y["range"])
    if "tickvals" in y:
        axes.set_yticks(y["tickvals"], y["ticktext"])
    for shape in chart.layout.get("shapes", ()):
        if shape["type"] == "rect":
            axes.axvspan(shape["x0"], shape["x1"], color="#dddddd", linewidth=0)
        elif shape["x0"] == shape["x1"]:
            axes.axvline(shape["x0"], color=shape["line"]["color"], linestyle="--", linewidth=1.2)
    axes.grid(axis="x", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    if len(chart.data) > 1:
        axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.02), frameon=False)


def _bars(axes: Any, trace: Mapping[str, Any], left: dict[Any, float], *, stacked: bool) -> None:
    """Draw horizontal bars; `left` has where those of the same row have ended."""
    starts = trace.get("base") or [left.get(row, 0.0) if stacked else 0.0 for row in trace["y"]]
    axes.barh(trace["y"], trace["x"], left=starts, height=0.78, color=trace["marker"]["color"], label=trace["name"])
    for row, start, size in zip(trace["y"], starts, trace["x"], strict=True):
        left[row] = start + size


def _points(axes: Any, trace: Mapping[str, Any]) -> None:
    marker, line, mode = trace.get("marker", {}), trace.get("line", {}), trace["mode"]
    axes.plot(
        trace["x"],
        trace["y"],
        color=line.get("color") or marker.get("color"),
        linestyle=("--" if line.get("dash") else "-") if "lines" in mode else "",
        marker="o" if "markers" in mode else "",
        markersize=marker.get("size", 6) / 2,
        markerfacecolor=marker.get("color"),
        markeredgewidth=0,
        drawstyle="steps-post" if line.get("shape") == "hv" else "default",
        alpha=marker.get("opacity"),
        label=trace["name"],
        linewidth=1.2,
    )
