"""Tables as text: everything is shown at every width, in columns where these fit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.report.text_page import Page, cells
from launcher.report.text_table import table

CELLS = st.text("ab 中é", min_size=1, max_size=30).map(lambda text: " ".join(text.split())).filter(bool)
ROWS = st.integers(2, 5).flatmap(lambda size: st.lists(st.lists(CELLS, min_size=size, max_size=size), min_size=1))


@given(rows=ROWS, width=st.integers(40, 120), right=st.booleans(), headed=st.booleans())
def test_every_word_is_shown_and_no_line_is_longer_than_it_must_be(rows, width, right, headed):
    heading = [f"title {number}" for number in range(len(rows[0]))] if headed else []
    lines = table(Page(width=width), rows, heading, right=range(len(rows[0])) if right else ())
    shown = " ".join(lines).split()
    for row in rows:
        for word in " ".join(row).split():
            assert word in shown
    assert all(cells(line) <= width or len(line.split()) <= 3 for line in lines)


@given(rows=ROWS)
def test_a_pipe_has_a_line_for_each_row(rows):
    lines = table(Page(), rows)
    assert [line.split() for line in lines] == [" ".join(row).split() for row in rows]


ROW = ["a", "10", "a name"]


CASES = {
    "columns": (80, [ROW, ["bb", "9", "b"]], (), (1,), ["a   10  a name", "bb   9  b"]),
    "a heading": (80, [ROW], ("id", "GiB", "what"), (1,), ["id  GiB  what", "a    10  a name"]),
    "a heading in several lines": (
        *(12, [["1", "22"]], ("#", "seconds of a step"), (1,)),
        ["   seconds", "      of a", "#     step", "1       22"],
    ),
    "a heading with a line break": (
        *(12, [["1", "22"]], ("#", "of a\nlarger table"), (1,)),
        ["     of a", "   larger", "#   table", "1      22"],
    ),
    "less room between numbers": (11, [["1", "22222", "333"]], ("", "", ""), (0, 1, 2), ["1 22222 333"]),
    "a row that does not fit": (
        *(20, [["a", "b", "c"]] * 3 + [["a", "x" * 15, "c"]], (), ()),
        ["a  b  c"] * 3 + ["a  xxxxxxxxxxxxxxx", "     c"],
    ),
    "no row fits": (20, [["a", "x" * 17]], ("one", "two"), (), ["a", "  two  xxxxxxxxxxxxxxxxx"]),
    "a pipe": (None, [["a", "x" * 60, "b"], ["a", "b", "c"]], (), (), [f"a  {'x' * 60}  b", f"a  b{' ' * 45}c"]),
}


@pytest.mark.parametrize("name", CASES)
def test_layouts(name):
    width, rows, heading, right, lines = CASES[name]
    shown = table(Page(width=width), rows, heading, right=right)
    assert [line for line in shown if line.strip()] == lines


def test_numbers_end_and_texts_begin_in_one_column():
    lines = table(
        Page(width=60), [["1", "none", "9.5"], ["10", "16 layers", "10.5"]], ["#", "how", "GiB"], right=(0, 2)
    )
    assert lines == [" #  how         GiB", " 1  none        9.5", "10  16 layers  10.5"]
