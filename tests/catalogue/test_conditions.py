"""Conditions of a backend's source over the keys of a section, and how the catalogue's tool reads them."""

import ast
from pathlib import Path
from typing import Any

import pytest

from launcher.catalogue.checkout.classes import Package
from launcher.catalogue.conditions import holds, is_condition
from tools.catalogue.mindformers_refusals import of_method
from tools.catalogue.mindformers_types import is_optional

_DEFAULTED = "(name or 'a') not in ('a', 'b')"


@pytest.mark.parametrize(
    ("text", "values", "expected"),
    [
        (_DEFAULTED, {"name": None}, False),
        (_DEFAULTED, {"name": "b"}, False),
        (_DEFAULTED, {"name": "c"}, True),
        ("(size and limit) == 8", {"size": 4, "limit": 8}, True),
        ("size and limit", {"size": 0, "limit": 8}, False),
        ("size < 1", {"size": "many"}, False),
        ("name.lower() not in ('a',)", {"name": "A"}, False),
        ("name.lower() not in ('a',)", {"name": 1}, False),
        ("not str(name).strip()", {"name": "  "}, True),
        ("len(sizes) != 3", {"sizes": [1, 2]}, True),
    ],
)
def test_a_condition_is_evaluated_as_python_does(text: str, values: dict[str, Any], expected: bool) -> None:
    assert is_condition(text)
    assert holds(text, values) is expected


@pytest.mark.parametrize("text", ["all(x > 0 for y in sizes for x in y)", "open(name)", "size +"])
def test_what_cannot_be_evaluated_is_no_condition(text: str) -> None:
    assert not is_condition(text)


_SOURCE = """
class Config:
    def __post_init__(self):
        if self.size < 1:
            raise ValueError("followed")
        for each in self.sizes:
            if each < 1:
                raise ValueError("in a loop")
        if self.off:
            return
        if self.rate < 0:
            raise ValueError("after an early return")
"""


def test_a_refusal_whose_condition_is_not_followed_is_reported_without_one(tmp_path: Path) -> None:
    """Without the loop and the early return, a file would be refused that the trainer accepts, or the reverse."""
    (tmp_path / "config.py").write_text(_SOURCE, encoding="utf-8")
    package = Package(root=tmp_path, folders=(".",))
    found = [
        (each.text, each.source.rpartition(":")[2]) for each in of_method(package.mro("Config")[0], "__post_init__")
    ]
    assert found == [("size < 1", "5"), ("", "8"), ("", "12")]


@pytest.mark.parametrize(
    ("annotation", "accepts_none"),
    [("Optional[int]", True), ("int | None", True), ("Union[int, None]", True), ("list[Optional[int]]", False)],
)
def test_none_is_accepted_where_the_annotation_names_it(annotation: str, accepts_none: bool) -> None:
    assert is_optional(ast.parse(annotation, mode="eval").body) is accepts_none
