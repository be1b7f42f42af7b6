"""The shipped text as records of each task."""

import json
from pathlib import Path

from launcher.rehearse.core.data.preferences import bundled_conversations
from launcher.rehearse.sample_data import LABELLED, MESSAGES, PAIRS, PROMPTS, record_files, write


def test_records_are_written_with_short_answers(tmp_path: Path) -> None:
    write(tmp_path)
    for name in (MESSAGES, PAIRS, LABELLED, PROMPTS):
        records = [json.loads(line) for line in (tmp_path / name).read_text(encoding="utf-8").splitlines()]
        assert len(records) > 100
        for record in records:
            assert record["messages"][0]["role"] == "user"
            assert sum(len(turn["content"]) for turn in record["messages"]) < 100


def test_a_pair_has_two_answers_and_labels_alternate() -> None:
    files = record_files()
    assert all(pair["messages"][-1]["content"] != pair["rejected_response"] for pair in files[PAIRS])
    assert {record["label"] for record in files[LABELLED]} == {True, False}
    assert [record["messages"] for record in files[MESSAGES]] == bundled_conversations()
