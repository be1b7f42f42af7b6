"""The tables of docs/running.md: when each executor's cases were measured, and what followed each fault."""

import datetime
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tools.bench.faults.case import Case, Result
from tools.docs.written import escaped
from tools.resumable import commit

PAGE = Path(__file__).resolve().parents[3] / "docs" / "running.md"
BEGIN, END = "<!-- faults: begin -->", "<!-- faults: end -->"
RUNS = "| executor | made | commit | cases right | left processes | lost a checkpoint | resumed | minutes |"
FAULTS = "| executor | fault | state | reason | exit code | left | newest checkpoint | |"
_LONGEST = 70


def tables(cases: Sequence[Case], known: Mapping[str, Result], before: Sequence[str] = ()) -> list[str]:
    """Return the lines of both tables.

    Args:
        cases: all, in the order of the table.
        known: what was measured; executors without a result keep their lines.
        before: lines of the tables so far.
    """
    done = {case.key: _row(case, known[case.key]) for case in cases if case.key in known}
    measured = {case.executor for case in cases if case.key in known}
    kept_runs, kept_rows = _parsed(before)
    runs = {name: kept_runs.get(name, "") for name in dict.fromkeys(case.executor for case in cases)}
    runs |= {name: _run(name, [(case, known[case.key]) for case in cases if case.key in known]) for name in measured}
    rows = [done.get(case.key, kept_rows.get((case.executor, escaped(case.name)), "")) for case in cases]
    return [
        "Made by `python -m tools.bench.faults --write`; minutes on two slow cores.",
        "",
        RUNS,
        "|---" * 8 + "|",
        *filter(None, runs.values()),
        "",
        FAULTS,
        "|---" * 8 + "|",
        *filter(None, rows),
    ]


def _run(executor: str, results: Sequence[tuple[Case, Result]]) -> str:
    own = [(case, found) for case, found in results if case.executor == executor]
    cells = (
        executor,
        f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
        commit(),
        f"{sum(found.right for _, found in own)} of {len(own)}",
        sum(found.left > 0 for _, found in own),
        sum(found.saved < case.saved or found.resumed is False for case, found in own),
        sum(found.resumed is True for _, found in own),
        round(sum(found.seconds for _, found in own) / 60),
    )
    return f"| {' | '.join(map(str, cells))} |"


def _row(case: Case, found: Result) -> str:
    verdict = "" if found.right else f"wrong: {'; '.join(found.wrong)}"[:200]
    saved = f"{found.saved}{', resumed' if found.resumed else ''}"
    cells = (
        case.executor,
        case.name,
        found.state or "–",
        _short(found.reason),
        found.code,
        found.left,
        saved,
        verdict,
    )
    return f"| {' | '.join(escaped(str(cell)) for cell in cells)} |"


def _short(reason: str) -> str:
    text = re.sub(r"/tmp/\S+", "FOLDER", reason)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _parsed(lines: Sequence[str]) -> tuple[dict[str, str], dict[tuple[str, str], str]]:
    """Return the lines of the first table by executor, and of the second by executor and fault."""
    border = lines.index(FAULTS) if FAULTS in lines else 0
    runs = {cells[0]: line for line, cells in _cells(lines[:border])}
    return runs, {(cells[0], cells[1]): line for line, cells in _cells(lines[border:])}


def _cells(lines: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    for line in lines:
        if line.startswith("| ") and line not in (RUNS, FAULTS):
            yield line, re.split(r"(?<!\\) \| ", line.removeprefix("| "))


def write(cases: Sequence[Case], known: Mapping[str, Result]) -> None:
    """Put the tables between their marks; executors without a result keep their lines."""
    text = PAGE.read_text(encoding="utf-8")
    pattern = re.compile(f"(?<={re.escape(BEGIN)}\n).*?(?={re.escape(END)})", re.DOTALL)
    found = pattern.search(text)
    assert found is not None, f"{PAGE} has no marks"
    lines = tables(cases, known, found[0].splitlines())
    PAGE.write_text(pattern.sub(lambda _: "\n".join(lines) + "\n", text), encoding="utf-8")
