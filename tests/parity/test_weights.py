"""The user's own weights are compared with their config.json before anything is made or trained."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from launcher.compose import compose
from launcher.convert.layouts.huggingface import huggingface_wanted
from launcher.convert.logical import logical_model
from launcher.families.config_json import config_from_model
from launcher.job.model import Model
from tests.conftest import Launch

WORDS = ("optimizer.lr=1e-3", "precision.dtype=fp32", "cluster.devices_per_node=1", "--backends", "megatron_lm")
RANDOM = "works: rehearse.shrink=true"


def model_of(recipe: str) -> Model:
    return compose([f"+recipe={recipe}"]).model


def folder_of(folder: Path, model: Model, shapes: dict[str, list[int]], **changed: Any) -> Path:
    """Write a folder with a config.json and a file with a hole for weights of these shapes."""
    folder.mkdir()
    config = {**config_from_model(model, torch_dtype="bfloat16"), **changed}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    header, end = {}, 0
    for name, shape in shapes.items():
        size = 2
        for each in shape:
            size *= each
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)
    return folder


def shapes_of(model: Model) -> dict[str, list[int]]:
    return {each.name: list(each.shape) for each in huggingface_wanted(logical_model(model))}


NORM, DOWN = "model.norm.weight", "model.layers.0.mlp.down_proj.weight"
# What is done to the tensors, what config.json says instead, and what is told.
WRONG: dict[str, tuple[Callable[[dict[str, list[int]]], object], dict[str, Any], str]] = {
    "another shape": (
        lambda shapes: None,
        {"intermediate_size": 768},
        f"{DOWN} has shape [128, 384], config.json has [128, 768]",
    ),
    "missing": (lambda shapes: shapes.pop(NORM), {}, f"{NORM} [128] is missing"),
    "unknown": (lambda shapes: shapes.update({"model.other.weight": [4]}), {}, "model.other.weight"),
}


@pytest.mark.parametrize("name", WRONG)
def test_weights_that_contradict_their_config_are_refused_before_anything_trains(
    launch: Launch, tmp_path: Path, name: str
) -> None:
    change, config, said = WRONG[name]
    model = model_of("tiny_qwen3")
    shapes = shapes_of(model)
    change(shapes)
    folder = folder_of(tmp_path / "mine", model, shapes, **config)
    refused = launch("parity", f"model.path={folder}", *WORDS, "--reference", "transformers")
    assert refused.code == 1
    assert "its weights contradict its config.json" in refused.err
    assert said in refused.err
    assert RANDOM in refused.err
    assert "trains" not in refused.err
    assert [each.name for each in tmp_path.iterdir()] == ["mine"]


def test_a_folder_of_another_model_than_the_recipes_is_told(launch: Launch, tmp_path: Path) -> None:
    model = model_of("tiny_qwen3")
    folder = folder_of(tmp_path / "mine", model, {NORM: [128]})
    refused = launch("parity", "+recipe=tiny_qwen3_moe", f"model.path={folder}", *WORDS, "--reference", "transformers")
    assert refused.code == 1
    assert "model_type qwen3 (not qwen3_moe in conf/model/tiny_qwen3_moe.yaml:" in refused.err


def test_a_folder_without_weights_is_refused_with_what_works(launch: Launch, tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "mine", model_of("tiny_qwen3"), {})
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    refused = launch("parity", f"model.path={folder}", *WORDS, "--reference", "transformers")
    assert refused.code == 1
    assert "no weights (*.safetensors) there" in refused.err
    assert RANDOM in refused.err
