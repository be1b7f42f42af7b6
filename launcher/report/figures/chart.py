"""What a chart is, and what all charts share: colours, and a layout without colours of its own."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from launcher.records import dataclass

# Okabe and Ito's palette, which people with any kind of colour vision tell apart, for light and dark backgrounds.
BLUE, SKY, GREEN, ORANGE, RED, PURPLE, GREY = (
    *("#0072b2", "#56b4e9", "#009e73", "#e69f00", "#d55e00", "#cc79a7"),
    "#999999",
)
PALETTE = (SKY, ORANGE, GREEN, PURPLE, BLUE, RED, "#f0e442", GREY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A chart as data.

    Attributes:
        name: short and unique on a page; a valid HTML id.
        title: what it shows.
        summary: the same in a sentence with the figures that matter, for those who do not see it.
        data, layout: as plotly.js takes them; colours of text, grid and background are the page's.
        head, rows: the figures as a table of texts.
    """

    name: str
    title: str
    summary: str
    data: Sequence[dict[str, Any]]
    layout: dict[str, Any]
    head: Sequence[str]
    rows: Sequence[Sequence[str]]

    @property
    def figure(self) -> dict[str, Any]:
        """The figure as `plotly.graph_objects.Figure` and `Plotly.newPlot` take it."""
        return {"data": list(self.data), "layout": self.layout}


def stacked_bars(
    labels: Iterable[str], size: str, parts: Iterable[tuple[str, str, Sequence[float]]]
) -> list[dict[str, Any]]:
    """Return one trace of horizontal bars for each part: its name, its colour, and its size in each row.

    Args:
        labels: of the rows.
        size: the size as a hover text has it, in d3-format.
    """
    rows = categories(labels)
    return [
        {
            "type": "bar",
            "orientation": "h",
            "name": name,
            "y": rows,
            "x": sizes,
            "marker": {"color": colour},
            "hovertemplate": f"%{{y}}<br>{name}: {size}<extra></extra>",
        }
        for name, colour, sizes in parts
    ]


def categories(labels: Iterable[str]) -> list[str]:
    """Return labels as plotly draws them literally: it reads tags and entities in every text, in hover texts too."""
    return [escape(label) for label in labels]


def layout(*, height: int, x: dict[str, Any], y: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a layout without colours: transparent, with a legend above the chart."""
    return {
        "height": height,
        "margin": {"l": 8, "r": 8, "t": 8, "b": 8},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "traceorder": "normal"},
        "hoverlabel": {"align": "left"},
        "xaxis": {"automargin": True, "zeroline": False, **x},
        "yaxis": {"automargin": True, "zeroline": False, **y},
        **more,
    }


def row_height(rows: int, *, least: int, most: int, total: int) -> int:
    """Return pixels of a row so that all of them take about `total`."""
    return max(least, min(most, total // max(rows, 1)))
