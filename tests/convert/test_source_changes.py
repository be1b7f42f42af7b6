"""A source that changes while it is converted: an error that names it, never a result with zeros or mixed weights."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from launcher.convert import convert, prove
from tests.convert.helpers import launch
from tests.convert.tiny import tiny_llama

Change = Callable[[Path], object]


def _cut(count: int) -> Change:
    return lambda file: os.truncate(file, file.stat().st_size - count)


def _other_values(file: Path) -> None:
    with file.open("r+b") as opened:
        opened.seek(-100, os.SEEK_END)
        opened.write(bytes(100))


CHANGES: dict[str, Change] = {
    "a few bytes cut off": _cut(100),
    "emptied": lambda file: os.truncate(file, 0),
    "other values": _other_values,
    "replaced": lambda file: file.write_bytes(file.read_bytes()),
    "removed": Path.unlink,
}
CASES: dict[str, tuple[str, ...]] = {
    "copies": ("--no-verify",),
    "casts": ("--dtype", "bf16", "--no-verify"),
    "casts, verified": ("--dtype", "bf16"),
    "checksums": ("--format", "legacy", "parallel.tp=2"),
}
# The step before which the source changes.
STEPS: dict[str, tuple[Any, str]] = {"writing": (convert, "_move"), "verification": (prove, "prove")}


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
@pytest.mark.parametrize("args", CASES.values(), ids=CASES)
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_source_that_changes_is_named_and_nothing_is_written(step, args, change, tmp_path, monkeypatch, capsys):
    module, name = step
    if name == "prove" and "--no-verify" in args:
        pytest.skip("there is no verification")
    source, really = tiny_llama(tmp_path / "hf"), getattr(module, name)

    def changed(*given: Any, **named: Any) -> Any:
        change(source / "model.safetensors")
        return really(*given, **named)

    monkeypatch.setattr(module, name, changed)
    assert launch("hf-to-mcore", "--model", source, "--out", tmp_path / "out", *args) == 1
    shown = capsys.readouterr().err
    assert "model.safetensors" in shown
    assert "internal error" not in shown
    assert not (tmp_path / "out").exists()
