"""No value of an argument becomes an option of its parser: what is written is what argparse itself reads back."""

import argparse
import contextlib
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.catalogue.command_line import can_be_written, option

TEXTS = st.text("-=.x1 e'\n", max_size=5) | st.sampled_from(["--y", "--y=3", "-1e-05", "-inf", "-.5", "--", "-"])


def read(args: list[str]) -> argparse.Namespace | None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--x")
    parser.add_argument("--y")
    parser.add_argument("--several", nargs="+")
    with contextlib.redirect_stderr(io.StringIO()):
        try:
            return parser.parse_args(args)
        except SystemExit:
            return None


@given(TEXTS)
def test_one_value_is_parsed(text: str) -> None:
    found = read([*option("x", [text]), "--y", "after"])
    if can_be_written([text]):
        assert found is not None
        assert (found.x, found.y) == (text, "after")
    else:
        assert text == "--"


@given(st.lists(TEXTS, min_size=1, max_size=3))
def test_several_values_are_parsed_or_refused(texts: list[str]) -> None:
    if can_be_written(texts):
        found = read([*option("several", texts), "--y", "after"])
        assert found is not None
        assert (found.several, found.y) == (texts, "after")


@pytest.mark.parametrize("texts", [["-x", "a"], ["a", "--y"], ["a", "--"], ["-1e-05", "1"], ["--"]])
def test_what_argparse_would_take_for_an_option_cannot_be_written(texts: list[str]) -> None:
    assert not can_be_written(texts)


@pytest.mark.parametrize("texts", [["a", "b"], ["-1", "-0.5"], ["-x"], ["-"], ["a", "-"], [""]])
def test_what_it_takes_for_values_can(texts: list[str]) -> None:
    assert can_be_written(texts)
