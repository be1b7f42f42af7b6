"""A language model inside a multimodal model: its vision tower is copied unchanged, there and back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from launcher.convert.containers import torch_dist
from tests.convert import zoo
from tests.convert.helpers import arrays_of, launch, tensors, with_next_mtp, write

MODELS = zoo.ENCLOSED


def _without_tower(folder: Path, out: Path) -> Path:
    language = {name: array for name, array in arrays_of(folder).items() if "visual." not in name}
    return write(out, language, (folder / "config.json").read_text())


def _core(folder: Path, out: Path) -> Path:
    assert launch("hf-to-mcore", "--model", folder, "--out", out, "--backend", "megatron") == 0
    return out


@pytest.mark.parametrize("name", MODELS)
def test_the_tower_is_in_the_checkpoint_whole(name: str, model: Callable[[str], Path], tmp_path: Path) -> None:
    chunks = torch_dist.read(_core(model(name), tmp_path / "core")).chunks
    tower = {chunk.key.removeprefix("visual.visual."): chunk.global_shape for chunk in chunks if "visual" in chunk.key}
    held = {name: kind[1] for name, kind in tensors(model(name)).items() if "visual." in name}
    assert tower == {name.partition("visual.")[2]: shape for name, shape in held.items()}
    assert len(tower) > 20
    assert all(chunk.key.startswith(("visual.visual.", "language_model.")) for chunk in chunks)


@pytest.mark.parametrize("name", MODELS)
def test_config_json_comes_back_with_what_is_around_the_language_model(
    name: str, model: Callable[[str], Path], tmp_path: Path
) -> None:
    core, back = _core(model(name), tmp_path / "core"), tmp_path / "back"
    assert launch("mcore-to-hf", "--checkpoint", core, "--out", back) == 0
    assert json.loads((back / "config.json").read_text()) == json.loads((model(name) / "config.json").read_text())


@pytest.mark.parametrize("name", ["qwen3_5", "qwen3_5_moe"])
def test_layers_that_predict_more_tokens_come_back(name: str, model: Callable[[str], Path], tmp_path: Path) -> None:
    folder, back = with_next_mtp(model, tmp_path / "hf", name), tmp_path / "back"
    core = _core(folder, tmp_path / "core")
    assert launch("mcore-to-hf", "--checkpoint", core, "--out", back) == 0
    assert tensors(back) == tensors(folder)


@pytest.mark.parametrize("name", MODELS)
def test_a_missing_tower_is_said_and_taken_from_the_model(
    name: str, model: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a training with language_model_only leaves it."""
    language = _without_tower(model(name), tmp_path / "language")
    core = _core(language, tmp_path / "core")
    assert "the checkpoint has the language model only" in capsys.readouterr().out
    assert launch("mcore-to-hf", "--checkpoint", core, "--out", tmp_path / "back") == 0
    shown = capsys.readouterr().out
    assert "initialises them at random" in shown
    assert "works: --model" in shown
    assert tensors(tmp_path / "back") == tensors(language)
    assert launch("mcore-to-hf", "--checkpoint", core, "--out", tmp_path / "whole", "--model", model(name)) == 0
    assert f"are those of {model(name)}" in capsys.readouterr().out
    assert tensors(tmp_path / "whole") == tensors(model(name))


@pytest.mark.parametrize("name", MODELS)
def test_names_of_a_language_model_by_itself_are_read(name: str, model: Callable[[str], Path], tmp_path: Path) -> None:
    def short(name: str) -> str:
        return name.replace("model.language_model.", "model.")

    spelled: dict[str, Any] = {short(name): array for name, array in arrays_of(model(name)).items()}
    folder = write(tmp_path / "hf", spelled, (model(name) / "config.json").read_text())
    assert launch("verify", folder, _core(model(name), tmp_path / "core")) == 0


def test_a_changed_byte_of_the_tower_is_noticed(
    model: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arrays = {name: array.copy() for name, array in arrays_of(model("qwen3_5")).items()}
    arrays["model.visual.pos_embed.weight"][3, 5] += 1
    other = write(tmp_path / "other", arrays, (model("qwen3_5") / "config.json").read_text())
    core = _core(model("qwen3_5"), tmp_path / "core")
    capsys.readouterr()
    assert launch("verify", other, core) == 1
    assert "model.visual.pos_embed.weight" in capsys.readouterr().out


def test_a_cast_covers_the_tower(model: Callable[[str], Path], tmp_path: Path) -> None:
    out = tmp_path / "core"
    args = ("--model", model("qwen3_5"), "--out", out, "--backend", "megatron", "--dtype", "bf16")
    assert launch("hf-to-mcore", *args) == 0
    assert {chunk.slot.dtype for chunk in torch_dist.read(out).chunks} == {"BF16"}


def test_two_names_of_one_tensor_are_refused(
    model: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of them would be read and the other one dropped."""
    arrays = arrays_of(model("qwen3_5"))
    name = next(name for name in arrays if name.startswith("model.language_model.") and name.endswith("norm.weight"))
    other = name.replace("model.language_model.", "model.")
    arrays[other] = arrays[name] + 1
    folder = write(tmp_path / "hf", arrays, (model("qwen3_5") / "config.json").read_text())
    assert launch("hf-to-mcore", "--model", folder, "--out", tmp_path / "core", "--no-verify") == 1
    shown = capsys.readouterr().err
    assert "are two names of one tensor" in shown
    assert {name, other} <= set(shown.split())
