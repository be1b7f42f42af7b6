"""Failure texts of public issues: the reason that is given is the reason, or none is given."""

import pytest

from launcher.job import field_paths
from launcher.observe.failure import Failure
from launcher.observe.reasons import REASONS
from tests.observe.corpus import SETS, Text, failure_of, texts, verdict

ALL = [(name, text) for name in SETS for text in texts(name)]


@pytest.mark.parametrize(("name", "text"), ALL, ids=[f"{name}-{text.name}" for name, text in ALL])
def test_no_reason_is_given_that_is_not_the_reason(name: str, text: Text, tmp_path):
    failure = failure_of(text, tmp_path)
    assert verdict(text, failure) != "wrong", failure
    if failure.reason and text.log:
        assert evidence_is_there(failure, text), failure


def evidence_is_there(failure: Failure, text: Text) -> bool:
    """Return whether FILE:LINE is the line that is quoted, or somebody else says it."""
    path, _, number = failure.evidence.rpartition(":")
    if not path.endswith(".log"):
        return bool(text.queue) or failure.evidence == "exit code of the node"
    return failure.message in text.log.split("\n")[int(number) - 1].replace("\r", "")


@pytest.mark.parametrize("name", SETS)
def test_most_reasons_are_found(name: str, tmp_path):
    found = [verdict(text, failure_of(text, tmp_path / text.name)) for text in texts(name)]
    assert found.count("right") >= 0.95 * len(found)


def test_the_collection_is_as_large_as_it_is_said_to_be():
    assert len(ALL) >= 139
    assert len({text.name for _, text in ALL}) == len(ALL)
    assert sum(text.reasons == ("",) for _, text in ALL) >= 15
    assert all(text.url.startswith("https://") for _, text in ALL)


def test_every_expected_reason_is_a_row():
    known = {reason.name for reason in REASONS} | {"exception", ""}
    assert {reason for _, text in ALL for reason in text.reasons} <= known


def test_every_row_says_what_it_means_what_to_change_and_who_writes_it():
    fields = set(field_paths())
    assert len({reason.name for reason in REASONS}) == len(REASONS)
    for reason in REASONS:
        assert reason.meaning, reason
        assert reason.signs, reason
        assert all(sign.source for sign in reason.signs), reason
        for text in reason.fields:
            for path in text.split(" (")[0].split(" or "):
                path = path.split("=")[0]
                words = " " in path or path.isupper()  # words for what is no field
                assert path in fields or path.startswith("backend.env.") or words, (reason.name, path)
