"""The table of docs/running.md."""

import datetime
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tools.bench.faults.case import Case, Result
from tools.docs.written import escaped

PAGE = Path(__file__).resolve().parents[3] / "docs" / "running.md"
BEGIN, END = "<!-- faults: begin -->", "<!-- faults: end -->"
_LONGEST = 70


def table(cases: Sequence[Case], known: Mapping[str, Result], why: Mapping[str, str]) -> list[str]:
    """Return the lines of the table, with what it was made by."""
    done = [(case, known[case.key]) for case in cases if case.key in known]
    right = sum(found.right for _, found in done)
    left = sum(found.left > 0 for _, found in done)
    lost = sum(found.saved < case.saved or found.resumed is False for case, found in done)
    resumed = sum(found.resumed is True for _, found in done)
    seconds = {name: round(sum(f.seconds for c, f in done if c.executor == name) / 60) for name in why}
    minutes = ", ".join(f"{name} {number}" for name, number in sorted(seconds.items()))
    head = [
        f"Made by `python -m tools.bench.faults --write` on {datetime.datetime.now(datetime.UTC):%Y-%m-%d}: "
        f"{right} of {len(done)} cases are right;",
        f"{left} left processes, {lost} lost a checkpoint, {resumed} were resumed from the newest one. "
        f"Minutes on two slow cores: {minutes}.",
        *(f"Not run here: {name} ({text})." for name, text in why.items() if text),
        "",
        "| executor | fault | state | reason | exit code | left | newest checkpoint | |",
        "|---|---|---|---|---|---|---|---|",
    ]
    return [*head, *_rows(done)]


def _rows(done: Sequence[tuple[Case, Result]]) -> Iterator[str]:
    for case, found in done:
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
        yield f"| {' | '.join(escaped(str(cell)) for cell in cells)} |"


def _short(reason: str) -> str:
    text = re.sub(r"/tmp/\S+", "FOLDER", reason)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def write(lines: Sequence[str]) -> None:
    """Put the table between its marks."""
    text = PAGE.read_text(encoding="utf-8")
    pattern = re.compile(f"(?<={re.escape(BEGIN)}\n).*?(?={re.escape(END)})", re.DOTALL)
    PAGE.write_text(pattern.sub(lambda _: "\n".join(lines) + "\n", text), encoding="utf-8")
