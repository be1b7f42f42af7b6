"""The shared LoRA adapter: its layers, its files, and what the reference computes with it."""

import json
from pathlib import Path
from typing import Any

import pytest

from launcher.compose import compose
from launcher.convert.lora.logical import A, B
from launcher.families.config_json import config_from_model
from launcher.job import Job
from launcher.mapping.backend import get_backend
from launcher.parity import adapter
from launcher.parity.low_rank import LowRank, add_factors, save_factors

SWIFT, MINDSPEED = get_backend("megatron"), get_backend("mindspeed")
_BASE = ["lora.rank=3", "lora.alpha=6", "seed=5"]


def _shared(folder: Path, *words: str) -> tuple[Job, Path]:
    """Return a job and the folder of its model, which holds config.json alone."""
    job = compose([*words, *_BASE])
    model = folder / "model"
    model.mkdir(parents=True)
    (model / "config.json").write_text(json.dumps(config_from_model(job.model, torch_dtype="float32")))
    return job, model


LAYERS = {
    "all, by default": ((), 4),
    "all-linear": (("all-linear",), 4),
    "attention": (("linear_qkv", "linear_proj"), 2),
    "one of each layer": (("linear_fc2",), 1),
}


@pytest.mark.parametrize("name", LAYERS)
def test_modules_of_one_megatron_layer_are_grouped(tmp_path: Path, name: str) -> None:
    targets, count = LAYERS[name]
    job, model = _shared(tmp_path, "+recipe=tiny_qwen3", f"lora.target_modules=[{','.join(targets)}]")
    found = adapter.layers_of(job, model)
    assert len(found) == count * (job.model.num_hidden_layers or 0)
    start = "model.layers.0."
    expected = {
        (f"{start}self_attn.q_proj", f"{start}self_attn.k_proj", f"{start}self_attn.v_proj"),
        (f"{start}self_attn.o_proj",),
        (f"{start}mlp.gate_proj", f"{start}mlp.up_proj"),
        (f"{start}mlp.down_proj",),
    }
    assert {parts for parts in found if parts[0].startswith(start)} <= expected


REFUSED = {
    "unknown name": (["+recipe=tiny_qwen3", "lora.target_modules=[q_proj]"], [SWIFT], "q_proj: no linear layer"),
    "another start": (["+recipe=tiny_qwen3", "lora.load=/somewhere"], [SWIFT], "start from one new adapter"),
    "experts": (["+recipe=tiny_qwen3_moe"], [SWIFT], "its experts are one parameter"),
    "latent projections": (
        ["+recipe=tiny_deepseek_v3", "lora.target_modules=[linear_q_down_proj,linear_kv_down_proj]"],
        [SWIFT, MINDSPEED],
        "MindSpeed-LLM has one factor A for q_a_proj, kv_a_proj_with_mqa",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_sides_would_train_differently_is_refused(tmp_path: Path, name: str) -> None:
    words, backends, said = REFUSED[name]
    job, model = _shared(tmp_path, *words)
    with pytest.raises(adapter.WrongAdapter, match=said):
        adapter.prepare(job, backends, model, reference=True)
    assert not adapter.adapter_beside(model).exists()


def test_no_adapter_without_lora(tmp_path: Path) -> None:
    job, model = _shared(tmp_path, "+recipe=tiny_qwen3")
    full = compose(["+recipe=tiny_qwen3"])
    adapter.prepare(full, [SWIFT], model, reference=True)
    assert not adapter.adapter_beside(model).exists()
    assert adapter.loaded_from(full, MINDSPEED, model, tmp_path) == {}
    assert adapter.loaded_from(job, MINDSPEED, model, tmp_path)["lora.load"] == str(tmp_path / "adapter")
    assert adapter.loaded_from(job, SWIFT, model, tmp_path)["lora.load"] == str(adapter.adapter_beside(model))


def test_what_is_written_is_read(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    job, model = _shared(tmp_path, "+recipe=tiny_qwen3", "lora.rslora=true")
    folder = adapter.write_adapter(job, model)
    found = adapter.read(folder)
    assert adapter.scale_of(folder) == pytest.approx(6 / 3**0.5)
    assert {name.removesuffix(A).removesuffix(B) for name in found} == {
        part for parts in adapter.layers_of(job, model) for part in parts
    }
    for parts in adapter.layers_of(job, model):
        assert all(torch.equal(found[parts[0] + A], found[part + A]) for part in parts)
    # Neither factor is 0: both have gradients from the first iteration on.
    assert all(float(tensor.abs().max()) > 0 for tensor in found.values())
    (tmp_path / "again").mkdir()
    again = adapter.write_adapter(job, _shared(tmp_path / "again", "+recipe=tiny_qwen3")[1])
    assert all(torch.equal(tensor, found[name]) for name, tensor in adapter.read(again).items())


def test_reordered_factors_are_those_of_the_reordered_model(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    job, model = _shared(tmp_path, "+recipe=tiny_qwen3")
    adapter.write_adapter(job, model)
    adapter.reorder(job, model, tmp_path / "other")
    one, other = adapter.read(adapter.adapter_beside(model)), adapter.read(tmp_path / "other-adapter")
    for name, axis in (("mlp.up_proj", 0), ("mlp.down_proj", 1), ("self_attn.q_proj", None)):
        weights = [each[f"model.layers.1.{name}{B}"] @ each[f"model.layers.1.{name}{A}"] for each in (one, other)]
        expected = weights[0] if axis is None else weights[0].flip(axis)
        assert torch.equal(weights[1], expected)


def test_the_reference_adds_the_product_and_shares_a(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")

    class Layer(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.q_proj, self.k_proj = torch.nn.Linear(4, 6), torch.nn.Linear(4, 2)
            self.o_proj = torch.nn.Linear(8, 4)

        def forward(self, hidden: Any) -> Any:
            return self.o_proj(torch.cat([self.q_proj(hidden), self.k_proj(hidden)], dim=-1))

    torch.manual_seed(0)
    model, merged = Layer(), Layer()
    merged.load_state_dict(model.state_dict())
    a, tensors = torch.randn(3, 4), {}
    for name, rows in (("q_proj", 6), ("k_proj", 2)):
        tensors |= {name + A: a.clone(), name + B: torch.randn(rows, 3)}
    config = {"peft_type": "LORA", "r": 3, "lora_alpha": 6, "use_rslora": False}
    adapter.write(tmp_path / "adapter", tensors, config)
    options = LowRank(adapter=str(tmp_path / "adapter"), groups=[["q_proj", "k_proj"]])
    factors = add_factors(model, options)
    for name in ("q_proj", "k_proj"):
        weight = dict(merged.named_modules())[name].weight
        weight.data += 2.0 * tensors[name + B] @ a
    hidden = torch.randn(5, 4)
    assert torch.allclose(model(hidden), merged(hidden), rtol=1e-5, atol=1e-5)
    model(hidden).square().sum().backward()
    merged(hidden).square().sum().backward()
    assert factors["q_proj" + A] is factors["k_proj" + A]
    gradient = sum(
        2.0 * tensors[name + B].T @ dict(merged.named_modules())[name].weight.grad for name in ("q_proj", "k_proj")
    )
    assert torch.allclose(factors["q_proj" + A].grad, gradient, rtol=1e-4, atol=1e-4)
    trained = {name for name, parameter in model.named_parameters() if parameter.grad is not None}
    assert trained == {"q_proj.factor_a", "q_proj.factor_b", "k_proj.factor_b"}
    save_factors(factors, options, tmp_path / "trained")
    assert all(torch.equal(tensor, tensors[name]) for name, tensor in adapter.read(tmp_path / "trained").items())
