"""A drawing of rectangles, lines and texts, written as SVG directly or as PNG with matplotlib."""

from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from launcher.outputs.kinds import MARK

INK, GREY, GRID = "#1f2430", "#5b6472", "#d8dce3"


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A filled rectangle; `title` is its tooltip."""

    x: float
    y: float
    width: float
    height: float
    colour: str
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A straight line."""

    x1: float
    y1: float
    x2: float
    y2: float
    colour: str = GRID
    dashed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A text; `anchor` is start, middle or end."""

    x: float
    y: float
    text: str
    size: float = 12
    anchor: str = "start"
    colour: str = INK
    bold: bool = False


@dataclass(slots=True, kw_only=True)
class Drawing:
    """Shapes to draw, in pixels from the upper left corner."""

    width: float
    height: float
    boxes: list[Box] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    texts: list[Text] = field(default_factory=list)


def svg(drawing: Drawing) -> str:
    """Return the drawing as one SVG element."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {drawing.width:g} {drawing.height:g}" '
        f'width="{drawing.width:g}" height="{drawing.height:g}" font-family="system-ui, sans-serif">',
        f"<!-- {MARK} -->",
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for box in drawing.boxes:
        title = f"<title>{escape(box.title)}</title>" if box.title else ""
        parts.append(
            f'<rect x="{box.x:.2f}" y="{box.y:.2f}" width="{box.width:.2f}" height="{box.height:.2f}" '
            f'fill="{box.colour}">{title}</rect>'
        )
    for line in drawing.lines:
        dash = ' stroke-dasharray="6 4"' if line.dashed else ""
        parts.append(
            f'<line x1="{line.x1:.2f}" y1="{line.y1:.2f}" x2="{line.x2:.2f}" y2="{line.y2:.2f}" '
            f'stroke="{line.colour}"{dash}/>'
        )
    for text in drawing.texts:
        weight = ' font-weight="600"' if text.bold else ""
        parts.append(
            f'<text x="{text.x:.2f}" y="{text.y:.2f}" font-size="{text.size:g}" text-anchor="{text.anchor}" '
            f'fill="{text.colour}"{weight}>{escape(text.text)}</text>'
        )
    return "\n".join([*parts, "</svg>"])


def write_png(path: Path, drawing: Drawing) -> None:
    """Write the drawing as a PNG of twice its size.

    Raises:
        ImportError: matplotlib is not installed.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    figure = Figure(figsize=(drawing.width / 100, drawing.height / 100), dpi=200, facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_xlim(0, drawing.width)
    axes.set_ylim(drawing.height, 0)
    axes.axis("off")
    for box in drawing.boxes:
        axes.add_patch(Rectangle((box.x, box.y), box.width, box.height, facecolor=box.colour, linewidth=0))
    for line in drawing.lines:
        style = "--" if line.dashed else "-"
        axes.plot([line.x1, line.x2], [line.y1, line.y2], color=line.colour, linewidth=0.8, linestyle=style)
    sides = {"start": "left", "middle": "center", "end": "right"}
    for text in drawing.texts:
        axes.text(
            text.x,
            text.y,
            text.text,
            fontsize=text.size * 0.72,
            ha=sides[text.anchor],
            va="baseline",
            color=text.colour,
            fontweight="bold" if text.bold else "normal",
        )
    figure.savefig(path, metadata={"Software": MARK})
