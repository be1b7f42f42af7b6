"""Bad input is refused with the tensor, what was expected and what was found; nothing that looks complete is left."""

from __future__ import annotations

import errno
import json
import math
import os
import pickle
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

from launcher.convert import convert
from tests.convert.helpers import arrays_of, convert_until_the_disk_is_full, launch, with_mtp, write


def _changed(change: Callable[[dict[str, Any], dict[str, Any]], None]) -> Callable[[Path, Path], Path]:
    """A copy of a model with changed tensors or configuration."""

    def made(model: Path, folder: Path) -> Path:
        arrays, config = dict(arrays_of(model)), json.loads((model / "config.json").read_text())
        change(arrays, config)
        return write(folder, arrays, config)

    return made


def _truncated(model: Path, folder: Path) -> Path:
    shutil.copytree(model, folder)
    file = folder / "model.safetensors"
    os.truncate(file, file.stat().st_size - 100)
    return folder


def _without_config(model: Path, folder: Path) -> Path:
    shutil.copytree(model, folder)
    (folder / "config.json").unlink()
    return folder


def _missing_shard(model: Path, folder: Path) -> Path:
    """A model of three shards of which the second is gone."""
    from launcher.convert.containers import safetensors
    from launcher.convert.containers.records import TensorSpec

    folder.mkdir()
    shutil.copy(model / "config.json", folder)
    specs = [TensorSpec(name=name, shape=array.shape, dtype="F32") for name, array in arrays_of(model).items()]
    safetensors.create(folder, specs, shard_bytes=sum(4 * math.prod(spec.shape) for spec in specs) // 3 + 1)
    next(folder.glob("model-00002-of-*")).unlink()
    return folder


def _corrupt(model: Path, folder: Path) -> Path:
    """A header whose offsets no longer fit the shapes."""
    shutil.copytree(model, folder)
    file = folder / "model.safetensors"
    data = bytearray(file.read_bytes())
    at = data.index(b'"data_offsets":[') + len(b'"data_offsets":[')
    data[at : at + 1] = b"7"
    file.write_bytes(data)
    return folder


def _nan(arrays: dict[str, Any], _config: dict[str, Any]) -> None:
    arrays["model.layers.1.mlp.up_proj.weight"] = numpy.full((96, 64), numpy.nan, dtype="float32")


CASES: dict[str, tuple[Callable[[Path, Path], Path], tuple[str, ...]]] = {
    "a tensor is missing": (
        _changed(lambda arrays, _: arrays.pop("model.layers.2.self_attn.k_proj.weight")),
        ("model.layers.2.self_attn.k_proj.weight", "[32, 64]", "missing"),
    ),
    "a tensor too many": (
        _changed(lambda arrays, _: arrays.update({"model.layers.0.mlp.extra.weight": numpy.ones((2, 2), "float32")})),
        ("model.layers.0.mlp.extra.weight", "no such tensor"),
    ),
    "a layer too many": (
        _changed(lambda _, config: config.update(num_hidden_layers=3)),
        ("model.layers.3.", "config.json has 3 layers"),
    ),
    "another width": (
        _changed(lambda _, config: config.update(intermediate_size=100)),
        ("model.layers.0.mlp.gate_proj.weight", "[96, 64]", "[100, 64]"),
    ),
    "tied where the file is not": (
        _changed(lambda _, config: config.update(tie_word_embeddings=True)),
        ("lm_head.weight", "differ"),
    ),
    "nothing but NaN": (_changed(_nan), ("model.layers.1.mlp.up_proj.weight", "NaN")),
    "mixed number formats": (
        _changed(lambda arrays, _: arrays.update({"model.layers.0.mlp.up_proj.weight": numpy.zeros((96, 64), "u2")})),
        ("mix number formats", "--dtype"),
    ),
    "a tensor of numbers that are no weights": (
        _changed(lambda arrays, _: arrays.update({"model.norm.weight": numpy.zeros(64, "int32")})),
        ("model.norm.weight is I32", "expected a weight", "BF16"),
    ),
    "a shard is missing": (_missing_shard, ("model-00002-of-", "missing")),
    "corrupt": (_corrupt, ("model.safetensors",)),
    "a wrong head count": (
        _changed(lambda _, config: config.update(num_key_value_heads=1)),
        ("model.layers.0.self_attn.k_proj.weight", "[32, 64]"),
    ),
    "truncated": (_truncated, ("model.safetensors", "truncated", "bytes")),
    "no config.json": (_without_config, ("config.json", "--model")),
}


@pytest.mark.parametrize("make,args", CASES.values(), ids=CASES.keys())
def test_bad_models_are_refused(
    make: Callable[[Path, Path], Path],
    args: tuple[str, ...],
    model: Callable[[str], Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "core"
    assert launch("hf-to-mcore", "--model", make(model("llama"), tmp_path / "hf"), "--out", out) == 1
    shown = capsys.readouterr().err
    assert "Traceback" not in shown
    for arg in args:
        assert arg in shown
    assert not out.exists()


class _Executes:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, (f"touch {self.mark}",)


def _core_truncated(core: Path, _mark: Path) -> None:
    file = next(core.rglob("*.distcp"))
    os.truncate(file, file.stat().st_size // 2)


def _core_without_a_file(core: Path, _mark: Path) -> None:
    next(core.rglob("*.distcp")).unlink()


def _core_executes(core: Path, mark: Path) -> None:
    next(core.rglob(".metadata")).write_bytes(pickle.dumps(_Executes(mark)))


def _core_arguments_execute(core: Path, mark: Path) -> None:
    with zipfile.ZipFile(next(core.rglob("common.pt")), "w") as file:
        file.writestr("common/data.pkl", pickle.dumps({"args": _Executes(mark)}, protocol=2))


CORE_CASES: dict[str, tuple[Callable[[Path, Path], None], str]] = {
    "truncated": (_core_truncated, ".distcp"),
    "a file is missing": (_core_without_a_file, ".distcp"),
    "a .metadata that executes": (_core_executes, "system"),
    "a .pt that executes": (_core_arguments_execute, "system"),
}


@pytest.mark.parametrize("damage,captured", CORE_CASES.values(), ids=CORE_CASES.keys())
def test_bad_training_checkpoints_are_refused(
    damage: Callable[[Path, Path], None],
    captured: str,
    model: Callable[[str], Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    core, out, mark = tmp_path / "core", tmp_path / "hf", tmp_path / "executed"
    assert launch("hf-to-mcore", "--model", model("llama"), "--out", core) == 0
    damage(core, mark)
    assert launch("mcore-to-hf", "--checkpoint", core, "--out", out) == 1
    shown = capsys.readouterr().err
    assert captured in shown
    assert "Traceback" not in shown
    assert not mark.exists()
    assert not out.exists()


def test_a_full_disk_ends_in_a_message(
    model: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    full = list(os.statvfs(tmp_path))
    full[4] = 0  # f_bavail
    with monkeypatch.context() as patched:
        patched.setattr(os, "statvfs", lambda path: os.statvfs_result(full))
        assert launch("hf-to-mcore", "--model", model("llama"), "--out", tmp_path / "core") == 1
    assert "free" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_disk_that_fills_up_in_the_middle_can_be_continued(
    model: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    args = ("hf-to-mcore", "--model", model("llama"), "--workers", "1")
    convert_until_the_disk_is_full(monkeypatch, args, tmp_path / "whole", tmp_path / "core", left=10)
    shown = capsys.readouterr().err
    assert "No space left on device" in shown
    assert "the same command continues where it stopped" in shown
    assert not (tmp_path / "core").exists()
    assert launch(*args, "--out", tmp_path / "core") == 0
    assert "continuing an interrupted conversion" in capsys.readouterr().err
    for file in (file for file in (tmp_path / "whole").rglob("*") if file.is_file() and file.name != "conversion.json"):
        assert (tmp_path / "core" / file.relative_to(tmp_path / "whole")).read_bytes() == file.read_bytes()


def test_a_target_that_holds_something_is_kept(
    model: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "core"
    out.mkdir()
    (out / "precious").write_text("mine")
    args = ("hf-to-mcore", "--model", model("llama"), "--out", out)
    for more in ((), ("--overwrite",)):
        assert launch(*args, *more) == 1
        captured = capsys.readouterr().err
        assert "precious" in captured
        assert "--overwrite" not in captured
        assert (out / "precious").read_text() == "mine"


@pytest.mark.parametrize("out", [".", "inside", ".."])
def test_the_source_is_never_overwritten(
    out: str, model: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "outer" / "hf"
    shutil.copytree(model("llama"), folder)
    assert launch("hf-to-mcore", "--model", folder, "--out", folder / out, "--overwrite") == 1
    assert "overlap" in capsys.readouterr().err
    assert (folder / "model.safetensors").read_bytes() == (model("llama") / "model.safetensors").read_bytes()


CUTS = {
    "heads": (
        ["parallel.tp=8"],
        "4 attention heads cannot be shared equally by tp 8; works: parallel.tp=2 · parallel.tp=4",
    ),
    "stages": (
        ["parallel.pp=3"],
        "4 layers cannot be shared equally by 3 pipeline stages; works: parallel.pp=2 · parallel.pp=4",
    ),
    "both ends": (
        ["parallel.pp=2", "parallel.first_stage_layers=5"],
        "first_stage_layers=5: the model has 4 layers for 2 pipeline stages; works: parallel.first_stage_layers=2 · "
        "parallel.first_stage_layers=3",
    ),
}


@pytest.mark.parametrize("args,captured", CUTS.values(), ids=CUTS.keys())
def test_layouts_that_no_rank_could_load_are_refused(
    args: list[str], captured: str, model: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "core"
    assert launch("hf-to-mcore", "--model", model("llama"), "--out", out, "--format", "legacy", *args) == 1
    assert captured in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


WRONG = {
    "no such folder": (("hf-to-mcore", "--model", "/nowhere", "--out", "x"), 2, "no such folder"),
    "no such verb": (("hf-to-what",), 2, "hf-to-mcore"),
    "no such format": (("hf-to-mcore", "--model", "M", "--out", "x", "--format", "pickle"), 2, "torch_dist"),
    "no such backend": (("hf-to-mcore", "--model", "M", "--out", "x", "--backend", "other"), 2, "megatron"),
    "no such dtype": (("hf-to-mcore", "--model", "M", "--out", "x", "--dtype", "int4"), 2, "bf16"),
    "an override with a typing error": (("hf-to-mcore", "--model", "M", "--out", "x", "parallel.pt=2"), 2, "parallel."),
    "another model's job": (
        ("hf-to-mcore", "--model", "M", "--out", "x", "+recipe=qwen3_8b", "--dry-run"),
        1,
        "the job's model differs from",
    ),
    "another number of layers": (
        ("hf-to-mcore", "--model", "M", "--out", "x", "model.num_hidden_layers=77"),
        1,
        "num_hidden_layers 77 against",
    ),
    "no checkpoint in it": (("mcore-to-hf", "--checkpoint", ".", "--out", "x"), 1, "no checkpoint there"),
}


@pytest.mark.parametrize("args,code,shown", WRONG.values(), ids=WRONG.keys())
def test_wrong_command_lines(
    args: tuple[str, ...],
    code: int,
    shown: str,
    model: Callable[[str], Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert launch(*(str(model("llama")) if arg == "M" else arg for arg in args)) == code
    assert shown in capsys.readouterr().err


def test_refusals_for_programs(
    model: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = _truncated(model("llama"), tmp_path / "hf")
    assert launch("hf-to-mcore", "--model", folder, "--out", tmp_path / "core", "--json") == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["ok"] is False
    assert "truncated" in answer["problems"][0]


def test_a_disk_that_is_full_at_the_end_can_be_continued(
    model: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(report: object) -> str:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    args = ("hf-to-mcore", "--model", model("llama"), "--out", tmp_path / "core")
    with monkeypatch.context() as patched:
        patched.setattr(convert.Report, "as_json", full)
        assert launch(*args) == 1
    shown = capsys.readouterr().err
    assert f"{tmp_path / 'core.partial'}" in shown
    assert "No space left on device" in shown
    assert "the same command continues where it stopped" in shown
    assert launch(*args) == 0
    assert "continuing an interrupted conversion" in capsys.readouterr().err


def test_a_folder_without_a_model_is_named_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad").mkdir()
    assert launch("verify", tmp_path / "bad", tmp_path / "bad") == 1
    assert capsys.readouterr().err.count(str(tmp_path / "bad")) == 1


def test_a_vocabulary_below_the_models_is_refused_with_one_that_works(
    model: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ("hf-to-mcore", "--model", model("qwen3"), "--out", tmp_path / "core", "parallel.tp=4")
    for target in (("--format", "legacy"), ("--format", "torch_dist"), ("--backend", "mindformers")):
        assert launch(*args, *target, "tokenizer.padded_vocab_size=128") == 1
        shown = capsys.readouterr().err
        assert "tokenizer.padded_vocab_size=128: the model has a vocabulary of 270" in shown
        assert "works: tokenizer.padded_vocab_size=272" in shown
        assert launch(*args, *target, "tokenizer.padded_vocab_size=272", "--dry-run") == 0


@pytest.mark.parametrize("works", [["moe.grouped_gemm=false"], ["--layers", "transformer_engine"]], ids=str)
def test_biases_of_experts_in_one_matrix_are_refused_with_what_works(
    works: list[str], model: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ("hf-to-mcore", "--model", model("gpt_oss"), "--format", "legacy", "--layers", "local")
    words = [*args, "moe.grouped_gemm=true", "--out", tmp_path / "out"]
    assert launch(*words) == 1
    shown = capsys.readouterr().err
    assert "GroupedMLP has no biases" in shown
    assert " ".join(works) in shown
    assert launch(*words, *works) == 0


def test_a_tp_that_nothing_trains_with_is_said_where_the_checkpoint_does_not_depend_on_it(
    model: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ("hf-to-mcore", "--model", model("llama"), "--out", tmp_path / "core")
    shown = {}
    for form in ("legacy", "torch_dist"):
        launch(*args, "--format", form, "parallel.tp=3", "--dry-run")
        shown[form] = "".join(capsys.readouterr())
    assert all("4 attention heads cannot be shared equally by tp 3" in text for text in shown.values())
    assert "no backend trains with this parallel.tp" in shown["torch_dist"]
    assert launch(*args, "--format", "torch_dist", "parallel.tp=2", "--dry-run") == 0
    assert "no backend trains" not in capsys.readouterr().out


def test_a_value_that_an_option_of_mindspeed_has_not_is_refused(
    model: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ("hf-to-mcore", "--model", model("deepseek_v3"), "--out", tmp_path / "core", "--backend", "mindspeed")
    assert launch(*args, "--set", "mla_mm_split=ture") == 1
    assert "--set mla_mm_split=ture: works: mla_mm_split=true" in capsys.readouterr().err
    assert launch(*args, "--set", "schedules_method=dualpipe", "parallel.pp=2") == 1
    assert "works: schedules_method=dualpipev" in capsys.readouterr().err


def test_an_explicit_layout_without_the_models_prediction_layers_is_offered_with_them(
    model: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = with_mtp(model, tmp_path / "hf")
    args = ("hf-to-mcore", "--model", folder, "--out", tmp_path / "core", "--format", "legacy", "parallel.pp=2")
    assert launch(*args, "parallel.layout=Ett|ttL") == 1
    assert "works: 'parallel.layout=Ett|ttmL'" in capsys.readouterr().err
    assert launch(*args, "parallel.layout=Ett|ttmL") == 0
