"""An interrupted conversion is continued only while everything that reaches its output is what it was."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.convert.adapters import adapter_arrays, linear_modules, write_adapter
from tests.convert.helpers import arrays_of, convert_until_the_disk_is_full, launch, write

Zoo = Callable[[str], Path]
Change = Callable[[Path], object]


def _config(**changed: Any) -> Change:
    def change(folder: Path) -> None:
        file = folder / "config.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), **changed}, indent=2))

    return change


def _weights(folder: Path) -> None:
    """The same names and shapes, other values, and even the same times."""
    times = os.stat(folder / "model.safetensors")
    arrays = {name: array + np.float32(1) for name, array in arrays_of(folder).items()}
    shutil.rmtree(folder / "again", ignore_errors=True)
    made = write(folder / "again", arrays, "{}")
    os.replace(made / "model.safetensors", folder / "model.safetensors")
    shutil.rmtree(made)
    os.utime(folder / "model.safetensors", ns=(times.st_atime_ns, times.st_mtime_ns + 1))


# What is changed in the source between the interruption and the same command, and the part that is named.
CHANGES: dict[str, tuple[Change, str]] = {
    "rope_theta": (_config(rope_theta=5e5, rope_parameters=None), "config.json"),
    "rms_norm_eps": (_config(rms_norm_eps=1e-5), "config.json"),
    "a key that the sizes do not depend on": (_config(eos_token_id=7), "config.json"),
    "tokenizer.json": (lambda folder: (folder / "tokenizer.json").write_text('{"b": 1}'), "tokenizer.json"),
    "tokenizer.model": (lambda folder: (folder / "tokenizer.model").write_bytes(b"2"), "tokenizer.model"),
    "a chat template": (lambda folder: (folder / "chat_template.jinja").write_text("{{ x }}"), "chat_template.jinja"),
    "a file that goes": (lambda folder: (folder / "vocab.txt").unlink(), "vocab.txt"),
    "generation_config.json": (
        lambda folder: (folder / "generation_config.json").write_text('{"top_k": 3}'),
        "generation_config.json",
    ),
    "weights": (_weights, "model.safetensors"),
}
FORMATS: dict[str, tuple[str, ...]] = {"torch_dist": (), "legacy": ("--format", "legacy", "parallel.tp=2")}


@pytest.fixture
def folder(model: Zoo, tmp_path: Path) -> Path:
    """A model with a tokenizer, which a test may change."""
    made = Path(shutil.copytree(model("llama"), tmp_path / "hf"))
    (made / "tokenizer.json").write_text('{"a": 1}')
    (made / "tokenizer.model").write_bytes(b"1")
    (made / "vocab.txt").write_text("a b")
    return made


def _same(left: Path, right: Path) -> None:
    names = {path.relative_to(left) for path in left.rglob("*") if path.is_file() and path.name != "conversion.json"}
    assert names == {
        path.relative_to(right) for path in right.rglob("*") if path.is_file() and path.name != "conversion.json"
    }
    for name in names:
        assert (left / name).read_bytes() == (right / name).read_bytes(), name


@pytest.mark.sample(keep=8)
@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize("change,named", CHANGES.values(), ids=CHANGES)
def test_what_was_changed_starts_again_and_says_why(
    change: Change,
    named: str,
    form: tuple[str, ...],
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    args = ("hf-to-mcore", "--model", folder, "--workers", "1", "--no-verify", *form)
    convert_until_the_disk_is_full(monkeypatch, args, tmp_path / "scratch", tmp_path / "core")
    change(folder)
    capsys.readouterr()
    assert launch(*args, "--out", tmp_path / "core") == 0
    captured = capsys.readouterr().err
    assert "continuing" not in captured
    assert "starting anew" in captured
    assert named in captured
    assert launch(*args, "--out", tmp_path / "fresh") == 0
    _same(tmp_path / "core", tmp_path / "fresh")


def _emptied(partial: Path) -> None:
    shutil.rmtree(partial)
    partial.mkdir()


def _without_tokenizer(partial: Path) -> None:
    (partial / "tokenizer.json.unfinished").unlink()


def _truncated(partial: Path) -> None:
    largest = max((path for path in partial.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    os.truncate(largest, largest.stat().st_size - 1)


LOSSES = {"emptied": _emptied, "without a file without tensors": _without_tokenizer, "truncated": _truncated}


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize("lose", LOSSES.values(), ids=LOSSES)
def test_a_partial_folder_that_lost_something_is_written_anew(
    lose: Change,
    form: tuple[str, ...],
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    core, back = tmp_path / "core", tmp_path / "back"
    there = ("hf-to-mcore", "--model", folder, "--workers", "1", *form)
    again = ("mcore-to-hf", "--checkpoint", core, "--model", folder, "--workers", "1")
    # Only a Hugging Face model has a tokenizer beside its weights.
    args, out = (again, back) if lose is _without_tokenizer else (there, core)
    assert args is there or launch(*there, "--out", core) == 0
    convert_until_the_disk_is_full(monkeypatch, args, tmp_path / "whole", out)
    lose(out.with_name(f"{out.name}.partial"))
    capsys.readouterr()
    assert launch(*args, "--out", out) == 0
    assert f"starting anew: removed or changed in {out.name}.partial: " in capsys.readouterr().err
    _same(out, tmp_path / "whole")


WRITTEN: dict[str, tuple[str, ...]] = {
    **FORMATS,
    "megatron": ("--backend", "megatron"),
    "mindspeed": ("--backend", "mindspeed"),
    "mindformers": ("--backend", "mindformers"),
    "mindformers, a file for each rank": ("--backend", "mindformers", "--set", "per_rank=true", "parallel.tp=2"),
}


@pytest.mark.parametrize("form", WRITTEN.values(), ids=WRITTEN)
def test_what_is_not_finished_is_not_read(
    form: tuple[str, ...],
    model: Zoo,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, moved = model("llama"), tmp_path / "moved"
    args = ("hf-to-mcore", "--model", source, "--workers", "1", "--no-verify", *form)
    ends_in_checksums = "legacy" in form or "mindspeed" in form  # of files that are complete
    convert_until_the_disk_is_full(
        monkeypatch, args, tmp_path / "scratch", tmp_path / "core", left=120 if ends_in_checksums else 40
    )
    os.rename(tmp_path / "core.partial", moved)
    _refused(moved, "--checkpoint", tmp_path, capsys)
    assert not any(path.name in ("config.json", "latest_checkpointed_iteration.txt") for path in moved.rglob("*"))
    for inner in (path for path in moved.iterdir() if path.is_dir()):
        _refused(inner, "--checkpoint", tmp_path, capsys)
    os.rename(moved, tmp_path / "core.partial")
    capsys.readouterr()
    assert launch(*args, "--out", tmp_path / "core") == 0
    assert "continuing" in capsys.readouterr().err
    assert launch(*args, "--out", tmp_path / "fresh") == 0
    _same(tmp_path / "core", tmp_path / "fresh")
    back = ("mcore-to-hf", "--checkpoint", tmp_path / "core", "--model", source, "--workers", "1", "--no-verify")
    convert_until_the_disk_is_full(monkeypatch, back, tmp_path / "back", tmp_path / "hf")
    _refused(tmp_path / "hf.partial", "--model", tmp_path, capsys)


def _refused(folder: Path, option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    verb = "hf-to-mcore" if option == "--model" else "mcore-to-hf"
    capsys.readouterr()
    assert launch(verb, option, folder, "--out", tmp_path / "read") == 1
    assert "not all of its tensors are written" in capsys.readouterr().err
    assert not (tmp_path / "read").exists()


OPTIONS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "another number format": (("--dtype", "bf16"), ("--dtype", "fp16")),
    "another layout of the same shapes": (("--format", "legacy"), ("--format", "legacy", "parallel.etp=1")),
    "another format": (("--format", "legacy"), ("--format", "torch_dist")),
    "native arguments": (
        ("--backend", "mindspeed", "backend.args.seed=1"),
        ("--backend", "mindspeed", "backend.args.seed=2"),
    ),
}


@pytest.mark.parametrize("first,second", OPTIONS.values(), ids=OPTIONS)
def test_other_options_start_again(
    first: tuple[str, ...],
    second: tuple[str, ...],
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    args = ("hf-to-mcore", "--model", folder, "--workers", "1", "--no-verify")
    convert_until_the_disk_is_full(monkeypatch, (*args, *first), tmp_path / "scratch", tmp_path / "core")
    capsys.readouterr()
    assert launch(*args, *second, "--out", tmp_path / "core") == 0
    assert "changed since the interrupted conversion: the options" in capsys.readouterr().err
    assert launch(*args, *second, "--out", tmp_path / "fresh") == 0
    _same(tmp_path / "core", tmp_path / "fresh")


def test_another_version_starts_again(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from launcher.convert import fingerprint

    args = ("hf-to-mcore", "--model", folder, "--workers", "1", "--no-verify")
    convert_until_the_disk_is_full(monkeypatch, args, tmp_path / "scratch", tmp_path / "core")
    monkeypatch.setattr(fingerprint, "__version__", "99")
    fingerprint._program.cache_clear()
    try:
        assert launch(*args, "--out", tmp_path / "core") == 0
    finally:
        fingerprint._program.cache_clear()
    assert "changed since the interrupted conversion: this program" in capsys.readouterr().err


@pytest.mark.parametrize("change", ["alpha", "config.json", "nothing"])
def test_a_merge(
    change: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = write_adapter(tmp_path / "adapter", adapter_arrays(linear_modules(folder)))
    args = ("merge", "--model", folder, "--adapter", adapter, "--workers", "1", "--no-verify")
    convert_until_the_disk_is_full(monkeypatch, args, tmp_path / "scratch", tmp_path / "out")
    if change == "alpha":
        file = adapter / "adapter_config.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), "lora_alpha": 77}))
    elif change == "config.json":
        _config(rms_norm_eps=1e-5)(folder)
    capsys.readouterr()
    assert launch(*args, "--out", tmp_path / "out") == 0
    assert ("starting anew" in capsys.readouterr().err) is (change != "nothing")
    assert launch(*args, "--out", tmp_path / "fresh") == 0
    _same(tmp_path / "out", tmp_path / "fresh")
