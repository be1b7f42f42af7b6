"""Failure texts of public issues: the reason that is given is the reason, or none is given."""

from pathlib import Path

import pytest

from launcher.job import field_paths
from launcher.observe.failure import Failure
from launcher.observe.reason import LINE, sign
from launcher.observe.reasons import REASONS
from tests.observe.corpus import SETS, Text, failure_of, texts, verdict
from tests.waiting import ended_if_stuck

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
    assert len(ALL) >= 400
    assert len({text.name for _, text in ALL}) == len(ALL)
    assert sum(text.reasons == ("",) for _, text in ALL) >= 15
    assert all(text.url.startswith("https://") for _, text in ALL)


def test_the_words_of_a_sign_leave_out_no_text_that_its_pattern_finds():
    lines = {line for _, text in ALL for line in (*text.log.split("\n"), text.queue)}
    for reason in REASONS:
        for each in reason.signs:
            for line in filter(each.pattern.search, lines):
                assert not each.words or any(word in line for word in each.words), (reason.name, line)


WORDS = {
    r"CUDA out of memory": ("CUDA out of memory",),
    r"(CUDA|NPU) error: a|b": (" error: a", "b"),
    r"fd \d+ failed with \(x\)": (" failed with (x)",),
    r"^FATAL: {3}": ("FATAL:",),
    r"installation\.?$": ("installation",),
    r"colou?r of [ab]\w+ lights*": (" light",),
    r"ab+cd": ("ab",),
    r"^(a|b)$": (),
}


@pytest.mark.parametrize("pattern", WORDS)
def test_words_that_every_text_of_a_pattern_has(pattern: str):
    assert sign(LINE, "", pattern).words == WORDS[pattern]


HOSTILE = ("1 ", "[a] ", "(a b=c) ", "a.b", ":", "a=b, ", "(a pid=", "NVRM: GSP ", "host='huggingface", "`x.cu:1: ")


@pytest.mark.parametrize("part", HOSTILE)
def test_a_long_line_does_not_hold_up_the_answer(part: str, tmp_path: Path):
    log = (part * 60_000 + "\n") * 3 + "Traceback (most recent call last):\n  File \"a.py\", line 1\nKeyError: 'y'\n"
    with ended_if_stuck():  # a pattern that backtracks without an end
        found = failure_of(Text(name="long", url="", reasons=("exception",), log=log), tmp_path)
    assert found.message == "KeyError: 'y'"


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
