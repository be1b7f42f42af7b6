"""Measured rows: kept in a file, and written as the tables of docs/parity.md."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from string import Template
from typing import Any

from launcher.parity.tolerance import ROUNDING, SPREADS, parameter_ratio
from tools.parity.kinds import KINDS, Kind, names

ROWS = Path(__file__).with_name("rows.json")
HEAD = Path(__file__).with_name("head.md")
LAST = tuple(Path(__file__).with_name(name) for name in ("mindformers.md", "gpu.md"))


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

    def text(self, causes: Sequence[str] = ()) -> str:
        """Return the cell as the page shows it.

        Args:
            causes: rules that say why it differs; without them, where it differs is shown.
        """
        if self.loss is None:
            return self.note
        shown = " / ".join(_shown(each) for each in (self.loss, self.grad_norm, self.parameters))
        if self.agrees:
            return "; ".join(part for part in (shown, self.note) if part)
        why = ", ".join(f"`{rule}`" for rule in causes)
        return (
            f"**{shown}**; {self.note.partition(';')[0].partition(':')[0]}: {why}"
            if why
            else f"**{shown}**; {self.note}"
        )


def _shown(value: float | None) -> str:
    if value is None:
        return "–"
    return "∞" if math.isinf(value) else f"{value:.0e}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One job on several backends.

    Attributes:
        name: of the job, in `kinds.KINDS`.
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
    order = names()
    known = sorted(rows, key=lambda name: (order.index(name) if name in order else len(order), name))
    trees = {name: {key: value for key, value in asdict(rows[name]).items() if key != "name"} for name in known}
    file.write_text(json.dumps(trees, indent=1) + "\n", encoding="utf-8")


def page(rows: Mapping[str, Row]) -> str:
    """Return docs/parity.md."""
    tables = [line for title, kind in KINDS.items() for line in _table(title, kind, rows)]
    last = "\n\n".join(file.read_text(encoding="utf-8").rstrip() for file in LAST)
    return "\n".join([head(), "", *tables, last]) + "\n"


def head() -> str:
    """Return the text above the tables, with the tolerances of `launch parity`."""
    text = Template(HEAD.read_text(encoding="utf-8"))
    return text.substitute(tolerances="\n".join(_tolerances())).rstrip()


def _tolerances() -> Iterator[str]:
    yield "| number format | loss | gradient norm | times the spread | parameters, times the gradient norm |"
    yield "|---|---|---|---|---|"
    for dtype, each in ROUNDING.items():
        sizes = f"{_exponent(each.loss)} | {_exponent(each.grad_norm)} | {SPREADS:g}"
        yield f"| {dtype} | {sizes} | {parameter_ratio(dtype):.0f} |"


def _exponent(value: float) -> str:
    return f"{value:.0e}".replace("e-0", "e-")


def _table(title: str, kind: Kind, measured: Mapping[str, Row]) -> Iterator[str]:
    rows = [measured[name] for name in kind.cases if name in measured]
    yield from (f"## {title}", "", *kind.text(kind.before))
    yield f"<!-- {kind.stem}: begin -->"
    if rows:
        backends = list(dict.fromkeys(backend for row in rows for backend in row.cells))
        yield " | ".join(("| job", "iterations", *backends)) + " |"
        yield "|---" * (len(backends) + 2) + "|"
        for row in rows:
            causes = kind.cases[row.name].causes
            cells = (
                row.cells[backend].text(causes.get(backend, ())) if backend in row.cells else "" for backend in backends
            )
            yield " | ".join((f"| {row.name}", str(row.iterations), *cells)) + " |"
        dates = sorted({row.date for row in rows})
        yield from ("", f"Measured {' to '.join(dict.fromkeys((dates[0], dates[-1])))}.")
    missing = [name for name in kind.cases if name not in measured]
    yield from ([f"Not measured by `python -m tools.parity` yet: {'; '.join(missing)}."] if missing else [])
    yield f"<!-- {kind.stem}: end -->"
    yield from ("", *kind.text(kind.after))
