"""Results of resumable commands: read again at the same sources, forgotten at others, never half written."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from tools.resumable import load, save


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    passed: int


def _read(file: Path, sources: str) -> dict[str, Result]:
    return load(file, sources, lambda values: Result(**values))


def test_results_come_back_at_the_same_sources_only(tmp_path: Path) -> None:
    file = tmp_path / "new folder" / "results.json"
    assert _read(file, "a") == {}
    save(file, "a", {"test_one": Result(passed=3)})
    assert _read(file, "a") == {"test_one": Result(passed=3)}
    assert _read(file, "b") == {}
    assert [each.name for each in file.parent.iterdir()] == ["results.json"]


def test_plain_values(tmp_path: Path) -> None:
    save(tmp_path / "verdicts.json", "a", {"port": "accepted"})
    assert load(tmp_path / "verdicts.json", "a", str) == {"port": "accepted"}


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"sources": "a"}', '{"sources": "a", "results": []}', '{"sources": "a", "results": {"x": {"y": 1}}}'],
)
def test_a_damaged_file_or_one_of_an_older_program_is_forgotten(tmp_path: Path, text: str) -> None:
    (tmp_path / "results.json").write_text(text)
    assert _read(tmp_path / "results.json", "a") == {}
