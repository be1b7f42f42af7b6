"""Adapters that PEFT's own classes write for every family of the zoo: there and back, and what they add to weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from backends.mindspeed.adapter import SHARED
from launcher.mapping.backend import get_backend
from tests.convert import zoo
from tests.convert.helpers import launch
from tests.convert.peft_adapter import write_peft_adapter
from tests.convert.peft_logits import logits as logits_of
from tests.convert.twins import ALIASED, TWINS

pytestmark = pytest.mark.slow
Zoo = Callable[[str], Path]
FILES = ("adapter_config.json", "adapter_model.safetensors")
# Families that no training stack with adapters builds, and why.
NOWHERE = {
    "qwen2_moe_mixed": "mlp_only_layers",
    "qwen3_moe_mixed": "mlp_only_layers",
    "llama4_text": "no Megatron model of llama4_text",
}
# Its class is in its repositories only, with other names than its twin's.
TWINLESS = ("internlm2",)
# Their adapters are refused (test_deepseek_v4.py).
WITHOUT = ("deepseek_v4",)
# Megatron-SWIFT has the family, without its biases.
BIASED = ("ernie4_5_mixed",)
# What is converted for both.
BOTH = ("qwen2", "qwen3_moe", "deepseek_v3", "deepseek_v3_kimi", "glm4_moe", "glm4_moe_lite", "internlm3")
SKIPPED = (*NOWHERE, *TWINLESS, *WITHOUT)


def _on_swift(name: str) -> bool:
    backend = get_backend("megatron")
    return name not in BIASED and backend.families()[zoo.family_of(name)].name(backend.default_version) is not None


ON_SWIFT = [name for name in zoo.MODELS if name not in SKIPPED and _on_swift(name)]
MINDSPEED = [name for name in zoo.MODELS if name not in SKIPPED and name not in ON_SWIFT]
CASES = [*((name, "megatron") for name in ON_SWIFT), *((name, "mindspeed") for name in (*MINDSPEED, *BOTH))]


def _adapter(folder: Path, out: Path, backend: str) -> Path:
    pytest.importorskip("peft")
    return write_peft_adapter(folder, out, SHARED if backend == "mindspeed" else ())


@pytest.mark.sample(keep=4)
@pytest.mark.parametrize(("name", "backend"), CASES)
def test_there_and_back_to_the_byte(name: str, backend: str, model: Zoo, tmp_path: Path) -> None:
    folder = model(name)
    adapter = _adapter(folder, tmp_path / "adapter", backend)
    core, back = tmp_path / "core", tmp_path / "back"
    assert launch("hf-to-mcore", "--model", folder, "--adapter", adapter, "--out", core, "--backend", backend) == 0
    assert launch("mcore-to-hf", "--checkpoint", core, "--out", back) == 0
    for file in FILES:
        assert (back / file).read_bytes() == (adapter / file).read_bytes(), file


@pytest.mark.sample(keep=3)
@pytest.mark.parametrize("name", [name for name in ON_SWIFT if name not in (*TWINS, *ALIASED)])
def test_the_factors_add_what_they_add_in_transformers(name: str, model: Zoo, tmp_path: Path) -> None:
    """PEFT's logits are those of the merged model, and its converted weights are the model's and B A."""
    import numpy

    folder = model(name)
    adapter = _adapter(folder, tmp_path / "adapter", "megatron")
    merged = tmp_path / "merged"
    assert launch("merge", "--model", folder, "--adapter", adapter, "--out", merged) == 0
    tokens = numpy.random.default_rng(0).integers(0, 200, (2, 16))
    expected = logits_of(folder, adapter, tokens)
    assert numpy.abs(zoo.logits(merged, tokens) - expected).max() < 1e-4
    assert numpy.abs(zoo.logits(folder, tokens) - expected).max() > 1e-2
    added = ["--model", folder, "--adapter", adapter]
    base, after, factors = (
        _tensors(tmp_path / kind, *words)
        for kind, words in (("base", ["--model", folder]), ("after", ["--model", merged]), ("factors", added))
    )
    changed = {key for key in base if not numpy.array_equal(base[key], after[key])}
    assert {_weight(key, base) for key in factors} == changed
    for key, a in factors.items():
        if ".lora_A." in key:
            product = 2 * (factors[key.replace(".lora_A.", ".lora_B.")] @ a)
            weight = _weight(key, base)
            assert numpy.abs(base[weight] + product - after[weight]).max() < 1e-6, key


def _weight(factor: str, weights: Mapping[str, Any]) -> str:
    """The weight that a factor changes; experts are one module deeper there."""
    name = f"{factor.partition('.lora_')[0]}.weight"
    return name if name in weights else name.replace(".mlp.experts.", ".mlp.experts.experts.")


def _tensors(out: Path, *words: object) -> dict[str, Any]:
    """Key to the tensor of a Megatron-core checkpoint, as torch reads it."""
    import torch
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    assert launch("hf-to-mcore", *words, "--out", out, "--backend", "megatron") == 0
    (folder,) = out.glob("iter_*")
    dcp_to_torch_save(folder, out / "whole.pt")
    tree = torch.load(out / "whole.pt", weights_only=False)
    return {key: value.numpy() for key, value in tree.items() if isinstance(value, torch.Tensor)}


@pytest.mark.parametrize("name", NOWHERE)
@pytest.mark.parametrize("backend", ["megatron", "mindspeed"])
def test_a_model_that_no_stack_builds_is_refused(
    name: str, backend: str, model: Zoo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = model(name)
    adapter = _adapter(folder, tmp_path / "adapter", "megatron")
    capsys.readouterr()
    words = ["--model", folder, "--adapter", adapter, "--out", tmp_path / "core", "--backend", backend]
    assert launch("hf-to-mcore", *words) == 1
    reported = capsys.readouterr().err
    assert "cannot build this model" in reported
    assert NOWHERE[name] in reported or backend == "mindspeed"


def test_factors_of_the_vision_tower_are_refused(
    model: Zoo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    peft = pytest.importorskip("peft")
    folder = model("qwen2_5_vl")
    adapted = peft.get_peft_model(zoo.loaded(folder), peft.LoraConfig(r=4, target_modules=["qkv", "o_proj"]))
    adapted.save_pretrained(tmp_path / "adapter")
    words = ["--model", folder, "--adapter", tmp_path / "adapter", "--out", tmp_path / "core"]
    assert launch("hf-to-mcore", *words) == 1
    reported = "visual.blocks.0.attn.qkv.lora_A.weight [4, 32]: not of the language model"
    assert reported in capsys.readouterr().err
