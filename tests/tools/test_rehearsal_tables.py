"""Tables of docs/rehearsal.md: one that is measured again leaves the others, which keep their own date."""

from pathlib import Path

import pytest

from tools.bench import rehearsal_matrix
from tools.bench.rehearsal_matrix import MARKS, PAGE, PARTS, write_tables


def _tables(text: str) -> dict[str, str]:
    return {part: text.partition(begin)[2].partition(end)[0] for part, (begin, end) in MARKS.items()}


@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_is_written_leaves_the_others(part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "rehearsal.md"
    page.write_text(PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    before = _tables(page.read_text(encoding="utf-8"))
    assert all(before.values())
    monkeypatch.setattr(rehearsal_matrix, "PAGE", page)
    write_tables({part: "measured again"})
    assert _tables(page.read_text(encoding="utf-8")) == before | {part: "\nmeasured again\n"}
