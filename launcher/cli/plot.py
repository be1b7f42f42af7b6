"""`--plot` of the verbs that draw."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from launcher.cli.refusal import NotDone

if TYPE_CHECKING:
    from launcher.report.figures import Chart

_EXTRA = "pip install 'launch-llm[report]'"
# What draws a page, and what draws a picture.
_LIBRARIES = {".html": ("jinja2", "plotly"), ".svg": ("matplotlib",), ".png": ("matplotlib",)}


def drawable(file: str | None) -> None:
    """Refuse, before anything is computed, a picture that cannot be drawn here; None: not given.

    Raises:
        NotDone: its library is not installed; the message says how to install it.
    """
    if file is None:
        return
    for name in _LIBRARIES.get(Path(file).suffix, ()):
        if find_spec(name) is None:
            raise NotDone(f"--plot {file}: needs {name}", _EXTRA)


def plotted(file: str, charts: "Sequence[Chart]", title: str) -> None:
    """Write charts to the file that the command line names."""
    from launcher.report.pictures import write_charts

    write_charts(Path(file).expanduser(), charts, title)
