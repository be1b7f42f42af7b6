"""The plot shows what is compared: each quantity, as the side reports it, beside the side's own tolerance."""

import math
from pathlib import Path
from typing import Any

import pytest

from launcher.parity.compare import Compared, compared
from launcher.parity.plot import PLOT, draw
from launcher.parity.runs import Iteration, Trained


def trained(label: str, *values: tuple[float, float | None]) -> Trained:
    iterations = tuple(
        Iteration(iteration=number, loss=loss, grad_norm=norm) for number, (loss, norm) in enumerate(values, start=1)
    )
    return Trained(label=label, iterations=iterations, problem="", command="", log="", seconds=0.0)


REFERENCE = trained("a", (6.0, 1.0), (5.0, 2.0))
TIGHT, WIDE = dict.fromkeys((1, 2), (1e-5, 1e-4)), dict.fromkeys((1, 2), (1e-5, 1e-3))


def side(label: str, allowed: dict[int, tuple[float, float]], *values: tuple[float, float | None]) -> Compared:
    return compared(REFERENCE, trained(label, *values), allowed, iterations=2)


def test_each_quantity_has_its_differences_and_the_tolerances_of_the_sides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figure = pytest.importorskip("matplotlib.figure")
    drawn: list[Any] = []
    monkeypatch.setattr(figure.Figure, "savefig", lambda self, file, **_: drawn.append((self, file)))
    sides = [
        side("b", TIGHT, (6.0, 1.01), (5.5, 2.0)),
        side("c", WIDE, (6.0, 1.0), (math.nan, 2.0)),
    ]
    assert draw(tmp_path, "a", sides) == tmp_path / PLOT
    ((made, _),) = drawn
    loss, norm = made.axes
    lines = {line.get_label(): list(line.get_ydata()) for line in loss.get_lines()}
    assert lines["b"] == pytest.approx([1e-9, 0.1])
    assert "c: not finite" in lines
    values = [list(line.get_ydata()) for line in norm.get_lines()]
    assert pytest.approx([0.01, 1e-9]) in values
    assert [1e-4, 1e-4] in values
    assert [1e-3, 1e-3] in values
    assert norm.get_ylabel() == "relative difference of the gradient norm"


def test_nothing_is_drawn_where_nothing_was_compared(tmp_path: Path) -> None:
    assert draw(tmp_path, "a", [side("b", TIGHT)]) is None
    assert list(tmp_path.iterdir()) == []


def test_a_quantity_that_no_side_reports_is_named(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert draw(tmp_path, "a", [side("b", TIGHT, (6.0, None), (5.0, None))]) == tmp_path / PLOT
    assert (tmp_path / PLOT).stat().st_size > 0
