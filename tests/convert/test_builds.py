"""What a backend cannot build is refused by the converter and by `check`; what it can has the names that it expects."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from launcher.cli import main
from tests.convert import zoo
from tests.convert.helpers import arrays_of, launch, write

Zoo = Callable[[str], Path]


def _with_biases(folder: Path, out: Path) -> Path:
    """Llama whose projections all have biases."""
    import numpy as np

    arrays = dict(arrays_of(folder))
    for name in [name for name in arrays if name.endswith("_proj.weight")]:
        arrays[name.replace(".weight", ".bias")] = np.ones(arrays[name].shape[0], np.float32)
    config = json.loads((folder / "config.json").read_text())
    return write(out, arrays, {**config, "attention_bias": True, "mlp_bias": True})


def _first_dense(folder: Path, out: Path) -> Path:
    """Qwen3-MoE whose first layer is dense."""
    import torch
    import transformers

    kind, values = zoo.MODELS["qwen3_moe"]
    torch.manual_seed(0)
    config = getattr(transformers, kind)(**values, mlp_only_layers=[0])
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(out)
    return out


def _as_it_is(folder: Path, out: Path) -> Path:
    return Path(shutil.copytree(folder, out))


# Family of the zoo, what is made of it, and what is said of it.
CANNOT: dict[str, tuple[str, Callable[[Path, Path], Path], str]] = {
    "mixtral": ("mixtral", _as_it_is, "no Megatron model of"),
    "llama with biases": ("llama", _with_biases, "linear_bias"),
    "qwen3_moe with a dense layer": ("qwen3_moe", _first_dense, "mlp_only_layers"),
}


@pytest.mark.parametrize("family,make,told", CANNOT.values(), ids=CANNOT)
@pytest.mark.parametrize("version", ["4.6.0", "3.12.6"])
def test_the_converter_and_check_refuse_the_same(
    family: str,
    make: Callable[[Path, Path], Path],
    told: str,
    version: str,
    model: Zoo,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder, out = make(model(family), tmp_path / "hf"), tmp_path / "out"
    words = ["backend=megatron", f"backend.version={version}"]
    assert launch("hf-to-mcore", "--model", folder, "--out", out, "--backend", "megatron", words[1]) == 1
    said = capsys.readouterr().err
    assert f"Megatron-SWIFT {version} cannot build this model" in said
    assert told in said
    assert "--backend megatron_lm" in said
    assert not out.exists()
    assert main(["check", *words, "task=pretrain", f"model.path={folder}", "--json"]) == 1
    findings = json.loads(capsys.readouterr().out)["findings"]
    errors = [finding for finding in findings if finding["severity"] == "error"]
    assert any(told.removesuffix(" of") in finding["message"] for finding in errors), errors


@pytest.mark.parametrize("family,make,told", CANNOT.values(), ids=CANNOT)
def test_without_a_backend_it_is_said(
    family: str,
    make: Callable[[Path, Path], Path],
    told: str,
    model: Zoo,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = make(model(family), tmp_path / "hf")
    assert launch("hf-to-mcore", "--model", folder, "--out", tmp_path / "out") == 0
    assert "Megatron-SWIFT cannot build this model" in (said := capsys.readouterr().out)
    assert told in said
    assert launch("hf-to-mcore", "--model", folder, "--out", tmp_path / "ms", "--backend", "mindspeed") == 0


LAYERS: dict[str, tuple[int, str | None, bool]] = {
    "all sparse, Megatron-SWIFT": (0, "megatron", False),
    "all sparse, Megatron-LM": (0, "megatron_lm", True),
    "all sparse": (0, None, True),
    "one dense, Megatron-SWIFT": (1, "megatron", False),
    "one dense, Megatron-LM": (1, "megatron_lm", False),
    "all dense, Megatron-SWIFT": (4, "megatron", False),
    "all dense": (4, None, False),
}


@pytest.mark.sample(keep=3)
@pytest.mark.parametrize("dense,backend,stacked", LAYERS.values(), ids=LAYERS)
def test_layers_are_named_as_the_backend_names_them(
    dense: int, backend: str | None, stacked: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """mcore-bridge makes a list of first_k_dense_replace also of 0, and megatron-core then stores each layer."""
    folder, out, back = _deepseek(tmp_path / "hf", dense), tmp_path / "out", tmp_path / "back"
    words = ["--backend", backend] if backend else []
    assert launch("hf-to-mcore", "--model", folder, "--out", out, *words) == 0
    said = capsys.readouterr().out
    assert ("names the layers of this model differently" in said) is (dense == 0 and backend is None)
    from launcher.convert.containers import torch_dist

    keys = {chunk.key for chunk in torch_dist.read(out, wanted=lambda key: True).chunks}
    assert ("decoder.layers.input_layernorm.weight" in keys) is stacked
    assert ("decoder.layers.3.input_layernorm.weight" in keys) is not stacked
    assert launch("mcore-to-hf", "--checkpoint", out, "--out", back) == 0
    assert launch("verify", folder, back) == 0


def _deepseek(folder: Path, dense: int) -> Path:
    import torch
    import transformers

    torch.manual_seed(0)
    _, values = zoo.MODELS["deepseek_v3"]
    config = transformers.DeepseekV3Config(**{**values, "first_k_dense_replace": dense})
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return folder


def test_megatron_lm_has_no_pattern_without_experts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = _deepseek(tmp_path / "hf", 4)
    assert launch("hf-to-mcore", "--model", folder, "--out", tmp_path / "out", "--backend", "megatron_lm") == 1
    assert "the pattern of layers needs more layers than dense ones" in capsys.readouterr().err


@pytest.mark.parametrize("dense", [0, 1, 2])
@pytest.mark.parametrize("every", [1, 2, 3])
def test_the_stored_arguments_say_which_layers_have_experts(dense: int, every: int) -> None:
    from launcher.convert.formats.arguments import _frequency
    from launcher.convert.logical import is_sparse
    from launcher.job.model import Model

    made: Any = Model(
        num_hidden_layers=7,
        num_experts=4,
        first_k_dense_replace=dense,
        moe_layer_freq=every,
        model_type="deepseek_v3",
    )
    for stack in (None, False):
        found = _frequency(made, stack)
        kinds = [int(layer % found == 0) for layer in range(7)] if isinstance(found, int) else found
        assert kinds == [int(is_sparse(made, layer)) for layer in range(7)]
