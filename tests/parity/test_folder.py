"""Comparisons that begin at once do not write into, or remove, one another's folder."""

from pathlib import Path

import pytest

from launcher.compose import compose
from launcher.parity.parity import _claimed
from launcher.parity.request import Request
from launcher.parity.sides import CannotCompare


def test_each_comparison_has_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    job = compose(["+recipe=tiny_qwen3"])
    asked = Request(overrides=(), backends=("megatron_lm",), iterations=1)
    first, second = (_claimed(asked, job) for _ in range(2))
    assert first != second
    named = Request(overrides=(), backends=("megatron_lm",), iterations=1, folder=tmp_path / "mine")
    (tmp_path / "mine").mkdir()
    assert _claimed(named, job) == tmp_path / "mine"
    with pytest.raises(CannotCompare, match="is not empty"):
        _claimed(named, job)
