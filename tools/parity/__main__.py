"""Runs `launch parity` over a matrix of jobs and writes docs/parity.md.

    python -m tools.parity --backends megatron_lm,megatron,mindspeed --python megatron=DIR/bin/python [--only NAME …]
    python -m tools.parity --backends mindformers@1.6.0 --python mindformers@1.6.0=DIR/bin/python

Each job (tools/parity/kinds.py) is compared with transformers on the backends that are named. What was measured is
kept in tools/parity/rows.json: a job that is there is not measured again without `--again`. `--page` only writes the
page.
"""

import argparse
import datetime
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tools.parity.case import ITERATIONS
from tools.parity.kinds import case_of, names
from tools.parity.rows import ROWS, Cell, Row, page, read, write
from tools.parity.versions import python_words, words_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "parity.md"


def main() -> int:
    """Measure what is asked for and write the page; exit 1 if a backend differs from transformers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backends", help="A,B[,C]")
    parser.add_argument("--python", action="append", default=[], metavar="BACKEND=PATH")
    parser.add_argument("--env", action="append", default=[], metavar="BACKEND:NAME=VALUE", help="its environment")
    parser.add_argument("--iterations", type=int, default=ITERATIONS, help=f"default: {ITERATIONS}")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", choices=names(), help="this job only")
    parser.add_argument("--rows", type=Path, default=ROWS, metavar="FILE", help="what was measured")
    parser.add_argument("--again", action="store_true", help="measure jobs that are in --rows, too")
    parser.add_argument("--page", action="store_true", help="write the page and measure nothing")
    options = parser.parse_args()
    if not options.page and not options.backends:
        parser.error("--backends A,B[,C] is needed")
    measured = [] if options.page else [_measured(name, options) for name in options.only or names()]
    if options.rows == ROWS:
        PAGE.write_text(page(read(ROWS)), encoding="utf-8")
    return 0 if all(row.agrees for row in measured) else 1


def _measured(name: str, options: argparse.Namespace) -> Row:
    """Return the row of a job: what is kept, and what is measured of the backends that are not."""
    kept = read(options.rows).get(name)
    known = {} if kept is None or options.again else dict(kept.cells)
    wanted = [backend for backend in options.backends.split(",") if backend not in known]
    if kept is not None and not wanted:
        return kept
    row = _row(name, wanted, options)
    if kept is not None:
        row = replace(row, cells={**kept.cells, **row.cells})
    write(options.rows, {**read(options.rows), name: row})
    print(" | ".join((name, *(row.cells[each].text() for each in wanted), f"{row.seconds:.0f} s")), flush=True)
    return row


def _row(name: str, backends: Sequence[str], options: argparse.Namespace) -> Row:
    """Compare all backends at once, or one after another where one of them refuses the job."""
    started = datetime.datetime.now(tz=datetime.UTC)
    case = case_of(name)
    iterations = options.iterations
    together = [backend for backend in backends if "@" not in backend and not words_of(backend, name)]
    found = _compared(case.words, together, iterations, options) if together else {}
    cells = _cells(found) if "compared" in found else {}
    for backend in backends:
        if backend not in cells:
            cells[backend] = _alone((*case.words, *words_of(backend, name)), backend, iterations, options)
    seconds = (datetime.datetime.now(tz=datetime.UTC) - started).total_seconds()
    return Row(name=name, date=str(started.date()), iterations=iterations, cells=cells, seconds=round(seconds))


def _alone(words: Sequence[str], backend: str, iterations: int, options: argparse.Namespace) -> Cell:
    found = _compared(words, [backend], iterations, options)
    if "compared" in found:
        (cell,) = _cells(found).values()
        return cell
    findings = [each["message"] for each in found.get("findings", ())]
    return Cell(agrees=False, note=f"refused: {(findings or [found.get('message', '')])[0]}")


def _compared(
    words: Sequence[str], backends: Sequence[str], iterations: int, options: argparse.Namespace
) -> dict[str, Any]:
    own = [
        *(word for backend in backends for word in python_words(backend, options.python)),
        *(word for pair in options.env if pair.partition(":")[0] in backends for word in ("--env", pair)),
    ]
    with tempfile.TemporaryDirectory(prefix="parity-") as folder:
        command = [
            *(sys.executable, "-m", "launcher", "parity", *words, "--backends", ",".join(backends), *own),
            *("--reference", "transformers", "--entry", "native", "--iterations", str(iterations)),
            *("-o", f"{folder}/out"),
            *("--locate", "--json"),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        found: dict[str, Any] = json.loads(done.stdout)
    except json.JSONDecodeError:
        return {"ok": False, "message": (done.stderr.strip().splitlines() or ["no output"])[-1]}
    return found


def _cells(found: Mapping[str, Any]) -> dict[str, Cell]:
    backends = {each["side"]: each["backend"] for each in found["sides"]}
    return {backends[each["side"]]: _cell(each, found) for each in found["compared"]}


def _cell(each: Mapping[str, Any], found: Mapping[str, Any]) -> Cell:
    if each["problem"]:
        return Cell(agrees=False, note=f"failed: {each['problem']}")
    sizes, parameters = each["largest_relative_difference"], found["parameters"].get(each["side"], {})
    apart = parameters.get("relative_to_movement")
    if parameters.get("tensor") and apart is None:
        apart = math.inf
    same = apart is not None and bool(parameters.get("tensor")) and apart <= parameters["tolerance"]
    notes = []
    if each["differs_at"] is not None:
        located = found["located"].get(each["side"], {})
        where = located.get("problem") or located.get("stage") or "not in one process"
        where = f"gradient of {where}" if located.get("gradient") else where
        part = each["differs_at"]
        quantity = part["quantity"].replace("grad_norm", "gradient norm")
        notes.append(f"from iteration {part['iteration']} ({quantity}); first difference: {where}")
    if parameters.get("problem"):
        notes.append(f"parameters not compared: {parameters['problem']}")
    elif not same:
        notes.append(f"parameter {parameters.get('tensor')}")
    return Cell(
        agrees=bool(each["agrees"]) and same,
        loss=sizes["loss"],
        grad_norm=sizes["grad_norm"],
        parameters=apart if parameters.get("tensor") else None,
        note="; ".join(notes),
    )


if __name__ == "__main__":
    sys.exit(main())
