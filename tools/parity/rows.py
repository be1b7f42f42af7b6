"""Measured rows: kept in a file, and written as the tables of docs/parity.md."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from string import Template
from typing import Any

from launcher.parity.tolerance import ROUNDING, SPREADS
from tools.parity.cases import KINDS

ROWS = Path(__file__).with_name("rows.json")
HEAD = Path(__file__).with_name("head.md")
# Text of a kind: before its table, or after it.
BEFORE: Mapping[str, Path] = {"Supervised fine-tuning": Path(__file__).with_name("fine_tuning.md")}
AFTER: Mapping[str, Path] = {"Pre-training": Path(__file__).with_name("foot.md")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What one backend's training said.

    Attributes:
        agrees: whether loss, gradient norm and parameters agree with the reference.
        loss, grad_norm: largest relative difference of all iterations; None: nothing was compared.
        parameters: largest difference of a tensor after training, relative to its movement; None: not compared.
        note: why there is no comparison, or where it differs.
    """

    agrees: bool
    loss: float | None = None
    grad_norm: float | None = None
    parameters: float | None = None
    note: str = ""

    def text(self) -> str:
        """Return the cell as the page shows it."""
        if self.loss is None:
            return self.note
        shown = " / ".join(_shown(each) for each in (self.loss, self.grad_norm, self.parameters))
        return "; ".join(part for part in (shown if self.agrees else f"**{shown}**", self.note) if part)


def _shown(value: float | None) -> str:
    if value is None:
        return "–"
    return "∞" if math.isinf(value) else f"{value:.0e}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One job on several backends.

    Attributes:
        name: of the job, in `cases.KINDS`.
        date: of the measurement.
        iterations: trained.
        cells: by backend.
        seconds: the measurement took.
    """

    name: str
    date: str
    iterations: int
    cells: Mapping[str, Cell]
    seconds: float

    @property
    def agrees(self) -> bool:
        """Whether every backend agrees."""
        return all(each.agrees for each in self.cells.values())


def read(file: Path) -> dict[str, Row]:
    """Return the rows of a file by name; none without the file."""
    if not file.exists():
        return {}
    kept = json.loads(file.read_text(encoding="utf-8"))
    return {name: _row(name, tree) for name, tree in kept.items()}


def _row(name: str, tree: Mapping[str, Any]) -> Row:
    cells = {backend: Cell(**cell) for backend, cell in tree["cells"].items()}
    return Row(**{**tree, "name": name, "cells": cells})


def write(file: Path, rows: Mapping[str, Row]) -> None:
    """Write rows, in the order of the page."""
    order = [name for cases in KINDS.values() for name in cases]
    known = sorted(rows, key=lambda name: (order.index(name) if name in order else len(order), name))
    trees = {name: {key: value for key, value in asdict(rows[name]).items() if key != "name"} for name in known}
    file.write_text(json.dumps(trees, indent=1) + "\n", encoding="utf-8")


def page(rows: Mapping[str, Row]) -> str:
    """Return docs/parity.md."""
    tables = [
        line for kind, cases in KINDS.items() for line in _table(kind, [rows[name] for name in cases if name in rows])
    ]
    parts = [head(), "", *tables]
    return "\n".join(parts) + "\n"


def head() -> str:
    """Return the text above the tables, with the tolerances of `launch parity`."""
    sizes = [
        f"{_exponent(each.loss)} of the loss and {_exponent(each.grad_norm)} of the gradient norm in {dtype}"
        for dtype, each in ROUNDING.items()
    ]
    text = Template(HEAD.read_text(encoding="utf-8"))
    return text.substitute(tolerances=", ".join(sizes), spreads=f"{SPREADS:g}").rstrip()


def _exponent(value: float) -> str:
    return f"{value:.0e}".replace("e-0", "e-")


def _table(kind: str, rows: list[Row]) -> Iterator[str]:
    yield BEFORE[kind].read_text(encoding="utf-8").rstrip() if kind in BEFORE else f"## {kind}"
    yield ""
    yield from _measured(kind, rows)
    if kind in AFTER:
        yield AFTER[kind].read_text(encoding="utf-8").rstrip()
        yield ""


def _measured(kind: str, rows: list[Row]) -> Iterator[str]:
    backends = list(dict.fromkeys(backend for row in rows for backend in row.cells))
    if rows:
        yield " | ".join(("| job", *backends)) + " |"
        yield "|---" * (len(backends) + 1) + "|"
    for row in rows:
        cells = (row.cells[backend].text() if backend in row.cells else "" for backend in backends)
        yield " | ".join((f"| {row.name}", *cells)) + " |"
    if rows:
        yield ""
    dates = sorted({row.date for row in rows})
    missing = [name for name in KINDS[kind] if name not in {row.name for row in rows}]
    measured = f"Measured {' to '.join(dict.fromkeys((dates[0], dates[-1])))}. " if dates else ""
    yield measured + (f"Not measured yet: {'; '.join(missing)}." if missing else "")
    yield ""
