"""LoRA factors of MindFormers: names, row order and scale by the merged weights, and back to PEFT to the byte."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.convert.adapters import adapter_arrays, linear_modules, write_adapter
from tests.convert.conftest import model
from tests.convert.helpers import launch

__all__ = ["model"]
Zoo = Callable[[str], Path]
MODELS = {
    "rows of gate and up alternate": ("qwen3", ""),
    "rows of gate and up follow each other": (
        "qwen3",
        "backend.args={model.model_config.use_interleaved_weight_layout_mlp:false}",
    ),
    "contiguous queries": ("qwen3", "backend.args={model.model_config.use_contiguous_weight_layout_attention:true}"),
    "MLA, attention": ("deepseek_v3", ""),
}


def _adapter(folder: Path, out: Path) -> Path:
    modules = {name: shape for name, shape in linear_modules(folder).items() if ".experts." not in name}
    return write_adapter(out, adapter_arrays(modules))


def _stored(folder: Path) -> dict[str, Any]:
    from safetensors.numpy import load_file

    return {name: value for file in folder.rglob("*.safetensors") for name, value in load_file(file).items()}


@pytest.mark.parametrize(("name", "order"), MODELS.values(), ids=MODELS.keys())
def test_factors_have_the_rows_of_their_weights(name: str, order: str, model: Zoo, tmp_path: Path) -> None:
    """The product, added to the stored weight, is the stored weight of the merged model."""
    import numpy as np

    folder = model(name)
    adapter = _adapter(folder, tmp_path / "adapter")
    merged, weights, sums, factors = (tmp_path / each for each in ("merged", "weights", "sums", "factors"))
    args = ["--backend", "mindformers", "--dtype", "fp32", *([order] if order else [])]
    assert launch("merge", "--model", folder, "--adapter", adapter, "--out", merged) == 0
    assert launch("hf-to-mcore", "--model", folder, "--out", weights, *args) == 0
    assert launch("hf-to-mcore", "--model", merged, "--out", sums, *args) == 0
    assert launch("hf-to-mcore", "--model", folder, "--adapter", adapter, "--out", factors, *args) == 0
    before, after, found = _stored(weights), _stored(sums), _stored(factors)
    stems = [key.removesuffix(".lora_A.weight") for key in found if key.endswith(".lora_A.weight")]
    assert stems
    for stem in stems:
        product = 2.0 * found[f"{stem}.lora_B.weight"] @ found[f"{stem}.lora_A.weight"]
        np.testing.assert_allclose(before[f"{stem}.weight"] + product, after[f"{stem}.weight"], atol=2e-3)


@pytest.mark.parametrize("name", ["llama", "qwen3", "deepseek_v3"])
def test_there_and_back_to_the_byte(name: str, model: Zoo, tmp_path: Path) -> None:
    folder = model(name)
    adapter = _adapter(folder, tmp_path / "adapter")
    core, back = tmp_path / "core", tmp_path / "back"
    args = ["--backend", "mindformers"]
    assert launch("hf-to-mcore", "--model", folder, "--adapter", adapter, "--out", core, *args) == 0
    assert launch("mcore-to-hf", "--checkpoint", core, "--out", back) == 0
    # The names of the zoo's DeepSeek adapter would select its experts, too: it comes back with narrower ones.
    files = ("adapter_model.safetensors", *(() if name == "deepseek_v3" else ("adapter_config.json",)))
    for file in files:
        assert (back / file).read_bytes() == (adapter / file).read_bytes(), file


def test_experts_are_refused(model: Zoo, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = model("qwen3_moe")
    adapter = write_adapter(tmp_path / "adapter", adapter_arrays(linear_modules(folder)))
    args = ["--model", folder, "--adapter", adapter, "--out", tmp_path / "out", "--backend", "mindformers"]
    assert launch("hf-to-mcore", *args) == 1
    assert "adapts neither experts nor routers" in capsys.readouterr().err
