"""The table of operators that MindSpore lacks on CPU is the one of the docs, and covers every stand-in and refusal."""

import ast
from pathlib import Path

from backends.mindformers import rehearse
from backends.mindformers.rehearse.missing_operators import MISSING, table
from backends.mindformers.rehearse.overrides import refusals
from tests.conftest import ROOT


def test_docs_show_the_table() -> None:
    assert table() in (ROOT / "docs" / "rehearsal.md").read_text(encoding="utf-8")


def test_every_stand_in_is_listed() -> None:
    tree = ast.parse((Path(rehearse.__file__).parent / "operators.py").read_text(encoding="utf-8"))
    replaced = {
        key.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict)
        for key in node.value.keys
        if isinstance(key, ast.Constant)
    }
    assert replaced
    assert replaced <= {name for row in MISSING for name in row.name.split(", ")}


def test_what_cannot_run_is_refused() -> None:
    for row in MISSING:
        assert bool(row.instead) is not bool(row.refused)
        for flag in row.refused:
            assert [finding.flags for finding in refusals({flag: 2})] == [(flag,)]
