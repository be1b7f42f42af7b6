"""Reads measured times of layouts from the summary table of Taylor's profiles.

Source of the columns: mindspore/toolkits e8d3573 autoparallel/symphony (README 2.2.2; utils/profiling/profile_info.py).
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from pathlib import Path

from launcher.job import Job
from launcher.records import dataclass

LAYOUT = ("dp", "tp", "pp", "ep")
# Further sizes that times depend on; a table without such a column applies to all of their values.
FURTHER = ("micro_batch_size", "etp")
TIMES = ("dmratio", "bfratio", "re_grow_ration", "hratio", "moe_bw")
# Peak memory (MB) of the layout itself, or with two expert parallel sizes.
PEAK, PAIR = "peakMem", ("ep1", "peakMem1", "ep2", "peakMem2")
COLUMNS = (*LAYOUT, *FURTHER, *TIMES, PEAK, *PAIR)
# Numbers that may be 0: a head without time, or a recomputation that costs nothing.
_MAY_BE_ZERO = frozenset({"hratio", "re_grow_ration"})


class BadTable(ValueError):
    """The table cannot be used; `mistakes` holds one message per error, with line and column."""

    def __init__(self, mistakes: list[str]) -> None:
        super().__init__("\n".join(mistakes))
        self.mistakes = mistakes


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """Peak memory as a function of the expert parallel size: `base + experts / ep`, bytes.

    Source: memory_model.py:76-91 of Taylor, in the general form for any two sizes.
    """

    base: float
    experts: float

    def at(self, ep: int) -> float:
        """Return bytes with this expert parallel size."""
        return self.base + self.experts / ep


def fit(ep1: int, peak1: float, ep2: int, peak2: float) -> Peak:
    """Return the peak memory fitted to two measurements.

    Raises:
        ValueError: both have the same expert parallel size.
    """
    if ep1 == ep2:
        raise ValueError(f"both peaks are of ep {ep1}")
    experts = (peak1 - peak2) / (1 / ep1 - 1 / ep2)
    return Peak(base=peak1 - experts / ep1, experts=experts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Measurements of one layout.

    Attributes:
        line: line number in the file.
        sizes: of the layout, by column.
        dense: forward of a dense layer over that of the layer whose time is `layer`; None: there is one kind.
        backward, recompute, head: over forward, as in Taylor's ratios.
        layer: seconds of the forward of one layer (with experts, if there are any).
        peak: memory, where it was measured.
    """

    line: int
    sizes: Mapping[str, int]
    dense: float | None
    backward: float
    recompute: float
    head: float
    layer: float
    peak: Peak | None

    def is_of(self, sizes: Mapping[str, int]) -> bool:
        """Return whether it was measured for these sizes."""
        return all(sizes.get(name) == size for name, size in self.sizes.items())

    @property
    def name(self) -> str:
        """The layout as text."""
        return ", ".join(f"{name}={size}" for name, size in self.sizes.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Completed rows, and the line numbers of empty ones."""

    path: Path
    rows: tuple[Measured, ...]
    empty: tuple[int, ...]

    def row_of(self, sizes: Mapping[str, int]) -> Measured | None:
        """Return the measurements for these sizes."""
        return next((row for row in self.rows if row.is_of(sizes)), None)


def sizes_of(job: Job) -> dict[str, int]:
    """Return the sizes of a job by layout column."""
    parallel, moe = job.parallel, job.model.is_moe
    return {
        "dp": parallel.dp or max(1, job.cluster.world_size // (parallel.tp * parallel.pp * parallel.cp)),
        "tp": parallel.tp,
        "pp": parallel.pp,
        "ep": parallel.ep if moe else 1,
        "micro_batch_size": job.batch.micro_batch_size,
        "etp": (parallel.etp if parallel.etp is not None else parallel.tp) if moe else 1,
    }


def two_kinds(job: Job) -> bool:
    """Return whether a model has both dense layers and layers with experts."""
    return job.model.mixes_dense_layers


def read_table(path: Path, *, dense: bool) -> Table:
    """Return the measurements of a file.

    Args:
        dense: the model has layers of two kinds, so that `dmratio` must be there.

    Raises:
        BadTable: columns are missing, or a cell is not a valid measurement.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = [(reader.line_num, row) for reader in [csv.reader(file)] for row in reader]
    except FileNotFoundError:
        raise BadTable([f"{path}: there is no such file"]) from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadTable([f"{path}: cannot be read as CSV ({error})"]) from None
    if not lines:
        raise BadTable([f"{path}:1: empty; the first line names the columns {', '.join((*LAYOUT, *TIMES))}"])
    header = [name.strip() for name in lines[0][1]]
    missing = [name for name in (*LAYOUT, *TIMES) if name not in header]
    twice = sorted({name for name in header if name in COLUMNS and header.count(name) > 1})
    if missing or twice:
        what = [f"there is no column {name}" for name in missing] + [f"column {name} appears twice" for name in twice]
        raise BadTable([f"{path}:1: {text}" for text in what])
    return _Reader(path, header, dense=dense).table(lines[1:])


class _Reader:
    def __init__(self, path: Path, header: list[str], *, dense: bool) -> None:
        self.path, self.header, self.dense = path, header, dense
        self.mistakes: list[str] = []
        self.line = 1

    def table(self, lines: list[tuple[int, list[str]]]) -> Table:
        rows: list[Measured] = []
        empty: list[int] = []
        for self.line, cells in lines:
            if not any(cell.strip() for cell in cells):
                continue
            if len(cells) != len(self.header):
                self._wrong(f"{len(cells)} cells, the first line has {len(self.header)} columns")
                continue
            values = dict(zip(self.header, (cell.strip() for cell in cells), strict=True))
            if not any(values[name] for name in TIMES):
                empty.append(self.line)
                continue
            row = self._row(values)
            same = next((other for other in rows if row is not None and other.sizes == row.sizes), None)
            if same is not None:
                self._wrong(f"the same layout as line {same.line}")
            elif row is not None:
                rows.append(row)
        if not rows and not self.mistakes:
            self.mistakes.append(f"{self.path}: no row is filled in ({', '.join(TIMES)})")
        if self.mistakes:
            raise BadTable(self.mistakes)
        return Table(path=self.path, rows=tuple(rows), empty=tuple(empty))

    def _row(self, values: Mapping[str, str]) -> Measured | None:
        before = len(self.mistakes)
        sizes = {name: self._size(name, values[name]) for name in LAYOUT}
        sizes |= {name: self._size(name, values[name]) for name in FURTHER if values.get(name)}
        times = {name: self._time(name, values[name]) for name in TIMES if name != "dmratio"}
        dense = self._time("dmratio", values["dmratio"]) if self.dense or values["dmratio"] else None
        peak = self._peak(values)
        if len(self.mistakes) > before:
            return None
        return Measured(
            line=self.line,
            sizes=sizes,
            dense=dense,
            backward=times["bfratio"],
            recompute=times["re_grow_ration"],
            head=times["hratio"],
            layer=times["moe_bw"] / 1e3,
            peak=peak,
        )

    def _peak(self, values: Mapping[str, str]) -> Peak | None:
        if values.get(PEAK):
            return Peak(base=self._time(PEAK, values[PEAK]) * 2**20, experts=0.0)
        given = [name for name in PAIR if values.get(name)]
        if not given:
            return None
        for name in PAIR:
            if name not in given:
                self._wrong(f"column {name}: empty; two peaks need {', '.join(PAIR)}")
        if len(given) < len(PAIR):
            return None
        one, two = self._size("ep1", values["ep1"]), self._size("ep2", values["ep2"])
        peaks = [self._time(name, values[name]) * 2**20 for name in ("peakMem1", "peakMem2")]
        try:
            return fit(one, peaks[0], two, peaks[1])
        except ValueError as error:
            self._wrong(f"column ep2: {error}; two different sizes are needed")
            return None

    def _size(self, name: str, text: str) -> int:
        if not text.isdecimal() or int(text) < 1:
            self._wrong(f"column {name}: {text or 'empty'}; a whole number of at least 1 is needed")
            return 1
        return int(text)

    def _time(self, name: str, text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or value < 0 or (value == 0 and name not in _MAY_BE_ZERO):
            self._wrong(f"column {name}: {text or 'empty'}; a number above 0 is needed")
            return 1.0
        return value

    def _wrong(self, text: str) -> None:
        self.mistakes.append(f"{self.path}:{self.line}: {text}")
