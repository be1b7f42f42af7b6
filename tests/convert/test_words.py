"""The words of `launch convert`: a dry run refuses what the start would, and no option is passed over."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy
import pytest

from tests.convert.adapters import adapter_arrays, linear_modules, write_adapter
from tests.convert.helpers import launch

Zoo = Callable[[str], Path]
Say = pytest.CaptureFixture[str]


@pytest.fixture
def adapter(model: Zoo, tmp_path: Path) -> Path:
    return write_adapter(tmp_path / "adapter", adapter_arrays(linear_modules(model("llama"))))


def _full(out: Path) -> None:
    out.mkdir()
    (out / "kept").write_text("x")


def _file(out: Path) -> None:
    out.write_text("x")


def _below_a_file(out: Path) -> None:
    out.parent.rmdir()
    out.parent.write_text("x")


# name: what is at the target, and what is said.
TARGETS: dict[str, tuple[Callable[[Path], None], str]] = {
    "not empty": (_full, "not empty"),
    "a file": (_file, "exists and is not a directory"),
    "below a file": (_below_a_file, "exists and is not a directory"),
}


@pytest.mark.parametrize("case", TARGETS)
@pytest.mark.parametrize("verb", ["hf-to-mcore", "reshard", "mcore-to-hf", "merge"])
def test_a_dry_run_refuses_the_target_that_the_start_would(
    model: Zoo, adapter: Path, tmp_path: Path, capsys: Say, verb: str, case: str
) -> None:
    made, text = TARGETS[case]
    folder, core = model("llama"), tmp_path / "core"
    assert launch("hf-to-mcore", "--model", folder, "--out", core) == 0
    out = tmp_path / "parent" / "out"
    out.parent.mkdir()
    made(out)
    before = sorted(tmp_path.rglob("*"))
    sources: dict[str, tuple[object, ...]] = {
        "hf-to-mcore": ("--model", folder),
        "merge": ("--model", folder, "--adapter", adapter),
    }
    args = (verb, *sources.get(verb, ("--checkpoint", core)), "--out", out)
    for more in ((), ("--dry-run",), ("--overwrite",), ("--dry-run", "--overwrite")):
        capsys.readouterr()
        assert launch(*args, *more) == 1
        assert text in capsys.readouterr().err
        assert sorted(tmp_path.rglob("*")) == before


def test_a_dry_run_refuses_a_target_without_room(
    model: Zoo, tmp_path: Path, capsys: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    real = os.statvfs

    def full(path: object) -> os.statvfs_result:
        found = list(real(str(path)))
        found[4] = 1  # blocks that are free
        return os.statvfs_result(found)

    monkeypatch.setattr(os, "statvfs", full)
    assert launch("hf-to-mcore", "--model", model("llama"), "--out", tmp_path / "out", "--dry-run") == 1
    assert "not enough space" in capsys.readouterr().err


# name: backend or format, option, what is said; "": it is taken.
OPTIONS = {
    "no option of torch_dist": (("--format", "torch_dist"), "nosuch=1", "has no option nosuch; works: without --set"),
    "no option of legacy": (("--format", "legacy"), "nosuch=1", "has no option nosuch; works: without --set"),
    "no option of MindSpeed": (("--backend", "mindspeed"), "nosuch=1", "works: --set mla_mm_split=…"),
    "no version of MindFormers": (("--backend", "mindformers"), "version=99", "works: version=2.1.0"),
    "no option of MindFormers": (("--backend", "mindformers"), "nosuch=1", "works: --set version=…"),
    "an option of MindSpeed": (("--backend", "mindspeed"), "mla-mm-split=false", ""),
    "an option of MindFormers": (("--backend", "mindformers"), "per_rank=false", ""),
    "no value": (("--backend", "mindformers"), "per_rank", "works: --set NAME=VALUE"),
}


@pytest.mark.parametrize("case", OPTIONS)
def test_an_option_that_the_format_does_not_know_is_refused(model: Zoo, tmp_path: Path, capsys: Say, case: str) -> None:
    kind, option, text = OPTIONS[case]
    args = ("hf-to-mcore", "--model", model("llama"), "--out", tmp_path / "out", *kind, "--set", option, "--dry-run")
    assert launch(*args) == (2 if text else 0)
    assert text in capsys.readouterr().err


def test_options_of_adapters_are_known_and_no_others(model: Zoo, adapter: Path, tmp_path: Path, capsys: Say) -> None:
    core = tmp_path / "core"
    args = ("hf-to-mcore", "--model", model("llama"), "--adapter", adapter, "--out", core)
    assert launch(*args, "--set", "nosuch=1") == 2
    assert "has no option nosuch; works: --set alpha=…" in capsys.readouterr().err
    assert launch(*args, "--layers", "local") == 2
    assert "is not written with these names; works: --layers transformer_engine" in capsys.readouterr().err
    assert launch(*args, "--layers", "transformer_engine") == 0
    assert launch("mcore-to-hf", "--checkpoint", core, "--out", tmp_path / "back", "--set", "alpha=16") == 0


def test_layers_that_a_format_names_itself_are_refused(model: Zoo, tmp_path: Path, capsys: Say) -> None:
    args = ("hf-to-mcore", "--model", model("llama"), "--out", tmp_path / "out", "--backend", "mindformers")
    assert launch(*args, "--layers", "local") == 2
    assert "works: without --layers" in capsys.readouterr().err


def test_two_peft_folders_are_compared_without_their_model(adapter: Path, tmp_path: Path, capsys: Say) -> None:
    other = tmp_path / "other"
    shutil.copytree(adapter, other)
    assert launch("verify", adapter, other) == 0
    assert "hold the same weights" in capsys.readouterr().out
    config = json.loads((other / "adapter_config.json").read_text())
    (other / "adapter_config.json").write_text(json.dumps({**config, "lora_alpha": 3 * config["lora_alpha"]}))
    assert launch("verify", adapter, other, "--json") == 1
    (problem,) = json.loads(capsys.readouterr().out)["problems"]
    assert "lora_alpha" in problem


def test_one_changed_factor_is_named(model: Zoo, adapter: Path, tmp_path: Path, capsys: Say) -> None:
    arrays = adapter_arrays(linear_modules(model("llama")))
    name = next(iter(arrays))
    changed = arrays[name].copy()
    changed.reshape(-1)[0] += numpy.asarray(1, dtype=changed.dtype)
    other = write_adapter(tmp_path / "other", {**arrays, name: changed})
    assert launch("verify", adapter, other) == 1
    assert name in capsys.readouterr().out
    fewer = write_adapter(tmp_path / "fewer", {key: value for key, value in arrays.items() if key != name})
    assert launch("verify", adapter, fewer) == 1
    assert name in capsys.readouterr().out


SAID_TWICE = {
    "a size of the target": (("backend.args.tensor-model-parallel-size=2",), ("parallel.tp=2",)),
    "two": (
        ("+backend.args.pipeline-model-parallel-size=2", "backend.args.make-vocab-size-divisible-by=256"),
        ("parallel.pp=2", "tokenizer.make_vocab_size_divisible_by=256"),
    ),
}


@pytest.mark.parametrize("name", SAID_TWICE)
def test_an_argument_of_the_backend_counts_like_its_field(model: Zoo, tmp_path: Path, name: str) -> None:
    """`launch convert` as it is offered for a job names the job's `backend.args`."""
    written = []
    for folder, words in zip(("args", "fields"), SAID_TWICE[name], strict=True):
        args = ("hf-to-mcore", "--model", model("llama"), "--out", tmp_path / folder, "--backend", "megatron_lm")
        assert launch(*args, "--format", "legacy", *words) == 0
        written.append(_read(tmp_path / folder))
    assert written[0] == written[1]
    assert any("mp_rank_01" in path or "_001" in path for path in written[0])


def _read(folder: Path) -> dict[str, bytes]:
    """Return every file of a checkpoint but the record of its conversion."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != "conversion.json")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}
