"""LoRA adapters there and back, byte by byte, over layouts; what cannot be carried over is refused or rewritten."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.convert.adapters import PARAMETERS, adapter_arrays, fused_arrays, linear_modules, write_adapter
from tests.convert.helpers import launch

Zoo = Callable[[str], Path]
FILES = ("adapter_config.json", "adapter_model.safetensors")
MODELS = ("llama", "llama_tied", "qwen2", "qwen3", "qwen2_moe", "qwen3_moe", "mixtral", "deepseek_v2", "deepseek_v3")


def _there(model: Path, adapter: Path, out: Path, *args: object) -> int:
    return launch("hf-to-mcore", "--model", model, "--adapter", adapter, "--out", out, *args)


# Megatron-SWIFT has no Mixtral.
SWIFT = tuple(name for name in MODELS if name != "mixtral")
LATER = (
    *("gpt_oss", "glm4_moe", "glm4_moe_lite", "deepseek_v3_kimi", "deepseek_v32", "minimax_m2", "olmoe", "internlm3"),
    *("qwen3_next", "qwen3_5", "qwen3_5_moe", "qwen3_vl", "qwen3_vl_moe"),
)
LATER_ON_MINDSPEED = ("mistral", "phi3", "gemma2", "internlm2", "internlm3", "glm4_moe", "glm4_moe_lite")


@pytest.mark.sample(keep=4)
@pytest.mark.parametrize("layout", [[], ["parallel.tp=2"], ["parallel.pp=2"]], ids=["one rank", "tp2", "pp2"])
@pytest.mark.parametrize("name", [*SWIFT, *LATER])
def test_there_and_back_to_the_byte(name: str, layout: list[str], model: Zoo, tmp_path: Path) -> None:
    folder = model(name)
    adapter = write_adapter(tmp_path / "adapter", adapter_arrays(linear_modules(folder)))
    core, back = tmp_path / "core", tmp_path / "back"
    assert _there(folder, adapter, core, *layout) == 0
    assert launch("mcore-to-hf", "--checkpoint", core, "--out", back) == 0
    for file in FILES:
        assert (back / file).read_bytes() == (adapter / file).read_bytes(), file


MINDSPEED = {
    "tp2": ["parallel.tp=2"],
    "pp2": ["parallel.pp=2"],
    "tp2 pp2 vpp2": ["parallel.tp=2", "parallel.pp=2", "parallel.vpp=2"],
    "ep2": ["parallel.ep=2"],
    "ep2 grouped": ["parallel.ep=2", "moe.grouped_gemm=true", "kernels.transformer_impl=local"],
    "tp2 ep2 etp1 grouped": ["parallel.tp=2", "parallel.ep=2", "parallel.etp=1", "moe.grouped_gemm=true"],
    "tp2 grouped": ["parallel.tp=2", "moe.grouped_gemm=true"],
}
CASES = [
    (name, layout)
    for name in (*MODELS, *LATER_ON_MINDSPEED)
    for layout in MINDSPEED
    if "moe" in name or "deep" in name or "ep2" not in layout
]


@pytest.mark.sample(keep=4)
@pytest.mark.parametrize(("name", "layout"), CASES, ids=[f"{name} {layout}" for name, layout in CASES])
def test_there_and_back_in_files_of_ranks(name: str, layout: str, model: Zoo, tmp_path: Path) -> None:
    folder = model(name)
    adapter = write_adapter(tmp_path / "adapter", _for_mindspeed(folder))
    core, back = tmp_path / "core", tmp_path / "back"
    assert _there(folder, adapter, core, "--backend", "mindspeed", *MINDSPEED[layout]) == 0
    assert launch("mcore-to-hf", "--checkpoint", core, "--out", back) == 0
    for file in FILES:
        assert (back / file).read_bytes() == (adapter / file).read_bytes(), file


def _for_mindspeed(folder: Path) -> dict[str, Any]:
    """Both down projections of latent attention are one layer there."""
    arrays = adapter_arrays(linear_modules(folder))
    for name in [name for name in arrays if name.endswith("kv_a_proj_with_mqa.lora_A.weight")]:
        head = name.removesuffix("kv_a_proj_with_mqa.lora_A.weight")
        first = next(key for key in (f"{head}q_a_proj.lora_A.weight", f"{head}q_proj.lora_A.weight") if key in arrays)
        arrays[name] = arrays[first]
    return arrays


def _products(folder: Path) -> dict[str, Any]:
    """Module to what it adds to its weight, in float64."""
    import math

    import numpy as np
    from safetensors.numpy import load_file

    config = json.loads((folder / "adapter_config.json").read_text())
    stored = load_file(folder / "adapter_model.safetensors")
    found = {}
    for name in stored:
        if name.endswith(".lora_A.weight"):
            module = name.removesuffix(".lora_A.weight").removeprefix("base_model.model.")
            a, b = stored[name].astype(np.float64), stored[name.replace("lora_A", "lora_B")].astype(np.float64)
            ranks, alphas = config.get("rank_pattern") or {}, config.get("alpha_pattern") or {}
            rank = next((value for key, value in ranks.items() if module.endswith(key)), config["r"])
            alpha = next((value for key, value in alphas.items() if module.endswith(key)), config["lora_alpha"])
            found[module] = alpha / (math.sqrt(rank) if config.get("use_rslora") else rank) * (b @ a)
    return found


def _only(model: Path, *leaves: str) -> dict[str, tuple[int, int]]:
    return {module: shape for module, shape in linear_modules(model).items() if module.endswith(leaves)}


UNEVEN: dict[str, tuple[str, tuple[str, ...], dict[str, Any], int]] = {
    "different A": ("llama", ("_proj",), {}, 12),
    "queries and values": ("qwen2", ("q_proj", "v_proj"), {}, 8),
    "one module": ("qwen3", ("down_proj",), {"alpha_pattern": {"layers.1.mlp.down_proj": 32}}, 4),
    "ranks": ("llama", ("o_proj", "down_proj"), {"rank_pattern": {"o_proj": 2}, "alpha_pattern": {"o_proj": 4}}, 4),
    "rslora": ("llama", ("q_proj", "k_proj", "v_proj"), {"use_rslora": True}, 12),
    "experts": ("qwen3_moe", ("_proj",), {}, 12),
    "latent": ("deepseek_v3", ("_proj", "_mqa"), {}, 8),
}


@pytest.mark.parametrize("backend", ["megatron", "mindspeed"])
@pytest.mark.parametrize(("name", "leaves", "changes", "rank"), UNEVEN.values(), ids=UNEVEN.keys())
def test_an_adapter_is_rewritten_only_when_asked_and_adds_the_same(
    name: str,
    leaves: tuple[str, ...],
    changes: dict[str, Any],
    rank: int,
    backend: str,
    model: Zoo,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    import numpy as np

    folder = model(name)
    ranks = changes.get("rank_pattern", {})
    modules = _only(folder, *leaves)
    if name == "qwen3":
        modules = {module: shape for module, shape in modules.items() if "layers.1." in module or "layers.2." in module}
    arrays = adapter_arrays(
        modules,
        shared=False,
        rank=lambda module: next((value for key, value in ranks.items() if module.endswith(key)), 4),
    )
    adapter, core, back = write_adapter(tmp_path / "adapter", arrays, **changes), tmp_path / "core", tmp_path / "back"
    args = ["--backend", backend]
    assert _there(folder, adapter, core, *args) == 1
    assert f"works: --rewrite (an equal adapter of rank {rank})" in capsys.readouterr().err
    assert not core.exists()
    assert _there(folder, adapter, core, *args, "--rewrite") == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["adapter", "core"]
    assert launch("mcore-to-hf", "--checkpoint", core, "--out", back) == 0
    before, after = _products(adapter), _products(back)
    for module, product in after.items():
        assert np.abs(product - before.get(module, 0)).max() <= 1e-15 * max(1, np.abs(product).max()), module
    assert before.keys() <= after.keys()
    assert json.loads((back / "adapter_config.json").read_text())["r"] == rank


def test_experts_are_not_split_in_adapters_of_megatron_swift(
    model: Zoo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = model("qwen3_moe")
    adapter = write_adapter(tmp_path / "adapter", adapter_arrays(linear_modules(folder)))
    layout = ["--backend", "megatron", "parallel.tp=2", "parallel.ep=2"]
    assert _there(folder, adapter, tmp_path / "core", *layout, "parallel.etp=2") == 1
    offer = capsys.readouterr().err.rpartition("works: ")[2].strip()
    assert offer == "parallel.etp=1"
    assert _there(folder, adapter, tmp_path / "core", *layout, offer) == 0


@pytest.mark.parametrize("backend", ["mindspeed", "mindformers"])
def test_rslora_becomes_an_alpha_where_the_stack_divides_by_the_rank(
    backend: str, model: Zoo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import numpy as np

    folder = model("qwen3")
    modules = _only(folder, "o_proj")
    adapter, back = tmp_path / "adapter", tmp_path / "back"
    write_adapter(adapter, adapter_arrays(modules, rank=lambda module: 4), r=4, use_rslora=True)
    args = ["--backend", backend]
    assert _there(folder, adapter, tmp_path / "core", *args) == 1
    assert "works: --rewrite (an equal adapter of rank 4)" in capsys.readouterr().err
    assert _there(folder, adapter, tmp_path / "core", *args, "--rewrite") == 0
    assert launch("mcore-to-hf", "--checkpoint", tmp_path / "core", "--out", back, "--model", folder) == 0
    before, after = _products(adapter), _products(back)
    assert before.keys() == after.keys()
    assert all(np.array_equal(after[module], before[module]) for module in before)
    # 8 / sqrt(8) is no whole number over 8: no alpha gives this scale.
    write_adapter(tmp_path / "other", adapter_arrays(modules, rank=lambda module: 8), r=8, use_rslora=True)
    assert _there(folder, tmp_path / "other", tmp_path / "none", *args) == 1
    assert "works: launch convert merge" in capsys.readouterr().err


def test_adapters_are_compared(model: Zoo, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = model("deepseek_v3")
    adapter = write_adapter(tmp_path / "adapter", _for_mindspeed(folder))
    other = write_adapter(tmp_path / "other", {**_for_mindspeed(folder), **_changed(folder)}, lora_alpha=4)
    core = tmp_path / "core"
    assert _there(folder, adapter, core, "--backend", "mindspeed") == 0
    for one, another in ((adapter, core), (core, adapter)):
        assert launch("verify", one, another, "--model", folder) == 0
    assert launch("verify", other, core, "--model", folder) == 1
    captured = capsys.readouterr().out
    assert "alpha: 4.0 and 8.0" in captured
    assert "differ in 256 of 256 elements of model.layers.0.mlp.down_proj.lora_B.weight" in captured
    assert launch("verify", folder, core) == 1


def _changed(folder: Path) -> dict[str, Any]:
    name = "model.layers.0.mlp.down_proj.lora_B.weight"
    return {name: adapter_arrays(linear_modules(folder), seed=1)[name]}


# How the second half of the first fused parameter is called, for expert 1.
FUSED = {"qwen2_moe": "experts.1.up_proj", "qwen3_moe": "experts.1.up_proj", "mixtral": "experts.1.w3"}


FUSED_CASES = [(name, ["--backend", "mindspeed", "parallel.ep=2"]) for name in FUSED]
FUSED_CASES += [(name, ["--backend", "megatron"]) for name in FUSED if name in SWIFT]


@pytest.mark.parametrize(("name", "args"), FUSED_CASES)
def test_factors_of_fused_experts(name: str, args: list[str], model: Zoo, tmp_path: Path) -> None:
    folder = model(name)
    arrays = fused_arrays(folder)
    adapter = write_adapter(tmp_path / "adapter", arrays, target_modules=[], target_parameters=PARAMETERS)
    core, back, plain = tmp_path / "core", tmp_path / "back", tmp_path / "plain"
    assert _there(folder, adapter, core, *args) == 0
    assert launch("mcore-to-hf", "--checkpoint", core, "--out", back) == 0
    for file in FILES:
        assert (back / file).read_bytes() == (adapter / file).read_bytes(), file
    # Without PEFT's configuration beside it: a pair of factors for each expert.
    (core / "huggingface" / "adapter_config.json").unlink()
    assert launch("mcore-to-hf", "--checkpoint", core, "--out", plain) == 0
    one = next(module for module in _products(plain) if ".layers.2." in module and module.endswith(FUSED[name]))
    fused = {key.rpartition(".lora_")[2]: value for key, value in arrays.items() if "layers.2.mlp.experts.base" in key}
    rows, experts = fused["B.weight"].shape[0] // 2, 4
    a, b = fused["A.weight"][4:8], fused["B.weight"].reshape(2 * rows, 4, experts)[rows:, :, 1]
    import numpy as np

    assert np.abs(_products(plain)[one] - 2 * (b.astype(np.float64) @ a)).max() < 1e-12


def test_an_adapter_goes_from_one_training_stack_to_another(model: Zoo, tmp_path: Path) -> None:
    folder = model("qwen3_moe")
    adapter = write_adapter(tmp_path / "adapter", adapter_arrays(linear_modules(folder)))
    one, two, back = tmp_path / "one", tmp_path / "two", tmp_path / "back"
    assert _there(folder, adapter, one, "parallel.tp=2") == 0
    args = ["--backend", "mindspeed", "parallel.tp=2", "parallel.ep=2", "parallel.etp=1"]
    assert launch("reshard", "--checkpoint", one, "--out", two, *args) == 0
    assert launch("mcore-to-hf", "--checkpoint", two, "--out", back) == 0
    for file in FILES:
        assert (back / file).read_bytes() == (adapter / file).read_bytes(), file


Q = "model.layers.1.self_attn.q_proj"
REFUSED: dict[str, tuple[list[str], dict[str, Any], list[str], str]] = {
    "dora": (["o_proj"], {"use_dora": True}, [], "use_dora: DoRA scales each row"),
    "pissa": (["o_proj"], {"init_lora_weights": "pissa"}, [], "the model's own weights were changed at the start"),
    "shapes": (["o_proj"], {"r": 8}, [], "has shape [4, 64]; model and adapter_config.json need [8, 64]"),
    "several": (["q_proj"], {}, [], "no factors, and training stacks give some to all layers of one name"),
    "no stack": (["o_proj"], {}, ["--backend", "megatron_lm"], "the adapter format of megatron_lm is unknown"),
    "rslora": (["o_proj"], {"use_rslora": True}, ["--backend", "mindspeed"], "always multiplies by alpha / r"),
    "no power of two": (
        ["o_proj", "down_proj"],
        {"alpha_pattern": {"o_proj": 3}},
        ["--rewrite"],
        "not a power of two apart, so one alpha for all would round",
    ),
}


@pytest.mark.parametrize(("leaves", "changes", "args", "captured"), REFUSED.values(), ids=REFUSED.keys())
def test_refusals(
    leaves: list[str],
    changes: dict[str, Any],
    args: list[str],
    captured: str,
    model: Zoo,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = model("llama")
    adapter = write_adapter(tmp_path / "adapter", adapter_arrays(_only(folder, *leaves)), **changes)
    assert _there(folder, adapter, tmp_path / "out", *args) == 1
    assert captured in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["adapter"]


@pytest.mark.parametrize(
    ("name", "captured"),
    [
        ("lm_head.weight", "no LoRA factor (modules_to_save, a bias)"),
        ("model.embed_tokens.lora_embedding_A", "factors of an embedding"),
        ("model.layers.9.self_attn.o_proj.lora_A.weight", "no linear layer of the model"),
    ],
)
def test_what_a_training_stack_has_no_place_for(
    name: str, captured: str, model: Zoo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = model("llama")
    arrays = adapter_arrays(linear_modules(folder))
    adapter = write_adapter(tmp_path / "adapter", {**arrays, name: next(iter(arrays.values()))})
    assert _there(folder, adapter, tmp_path / "out") == 1
    assert captured in capsys.readouterr().err


def test_a_run_without_alpha_asks_for_it(model: Zoo, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Checkpoints of runs whose arguments are lost: everything else is known from the factors."""
    folder = model("llama")
    adapter = write_adapter(tmp_path / "adapter", adapter_arrays(linear_modules(folder)))
    core, back = tmp_path / "core", tmp_path / "back"
    assert _there(folder, adapter, core) == 0
    (core / "args.json").unlink()
    _without_arguments(core)
    assert launch("mcore-to-hf", "--checkpoint", core, "--out", back) == 1
    assert "works: --set alpha=NUMBER" in capsys.readouterr().err
    assert launch("mcore-to-hf", "--checkpoint", core, "--out", back, "--set", "alpha=8") == 0
    assert (back / FILES[0]).read_bytes() == (adapter / FILES[0]).read_bytes()


def test_replicas_that_were_trained_separately_are_refused(
    model: Zoo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """MindSpeed-LLM's own training does that to the factors that every tensor-parallel rank has."""
    import os

    from launcher.convert.containers import torch_file

    folder = model("llama")
    adapter = write_adapter(tmp_path / "adapter", adapter_arrays(linear_modules(folder)))
    core = tmp_path / "core"
    assert _there(folder, adapter, core, "--backend", "mindspeed", "parallel.tp=2") == 0
    file = core / "iter_0000001" / "mp_rank_01" / "model_optim_rng.pt"
    slot = torch_file.read(file)["model"]["decoder.layers.0.self_attention.linear_qkv.lora_A.default.weight"]
    descriptor = os.open(file, os.O_RDWR)
    os.pwrite(descriptor, b"\x01\x02\x03\x04", slot.offset)
    os.close(descriptor)
    assert launch("mcore-to-hf", "--checkpoint", core, "--out", tmp_path / "back") == 1
    assert "differ in 1 of 256 elements of model.layers.0.self_attn.q_proj.lora_A.weight" in capsys.readouterr().err
    assert not (tmp_path / "back").exists()


def _without_arguments(core: Path) -> None:
    import torch

    file = core / "iter_0000001" / "common.pt"
    tree = torch.load(file, weights_only=False)
    del tree["args"]
    torch.save(tree, file)


def _uneven(model: Path, folder: Path, **changes: Any) -> Path:
    """An adapter that a training stack can have only rewritten."""
    return write_adapter(folder, adapter_arrays(_only(model, "q_proj", "v_proj"), shared=False), **changes)


@pytest.mark.parametrize("args", [[], ["--dry-run"]], ids=["written", "dry run"])
def test_rewriting_leaves_all_folders_of_others_alone(args: list[str], model: Zoo, tmp_path: Path) -> None:
    folder = model("llama")
    adapter = _uneven(folder, tmp_path / "core.rewritten")
    before = {file.name: file.read_bytes() for file in adapter.iterdir()}
    assert _there(folder, adapter, tmp_path / "core", "--rewrite", *args) == 0
    assert {file.name: file.read_bytes() for file in adapter.iterdir()} == before
    expected = ["core.rewritten"] if args else ["core", "core.rewritten"]
    assert sorted(path.name for path in tmp_path.iterdir()) == expected


def test_a_rewritten_adapter_does_not_replace_the_one_that_is_read(
    model: Zoo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = model("llama")
    adapter = _uneven(folder, tmp_path / "adapter")
    assert _there(folder, adapter, adapter, "--rewrite", "--overwrite") == 1
    assert "overlap; works: --out" in capsys.readouterr().err
    assert (adapter / "adapter_config.json").is_file()


def test_numbers_that_would_become_too_small_are_not_rounded(
    model: Zoo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import numpy as np

    folder = model("llama")
    random = adapter_arrays(_only(folder, "o_proj", "v_proj"))
    arrays = {name: (np.rint(value * 256) / 256).astype(np.float16) for name, value in random.items()}
    changes = {"alpha_pattern": {"o_proj": 32}}
    fits = write_adapter(tmp_path / "fits", arrays, **changes)
    assert _there(folder, fits, tmp_path / "core", "--rewrite", "--dry-run") == 0
    name = next(name for name in arrays if "layers.2" in name and name.endswith("v_proj.lora_B.weight"))
    arrays[name][3, 1] = 3e-7
    adapter = write_adapter(tmp_path / "adapter", arrays, **changes)
    assert _there(folder, adapter, tmp_path / "core", "--rewrite") == 1
    assert "model.layers.2.self_attn.v_proj.lora_B.weight: numbers so small that F16" in capsys.readouterr().err
    assert not (tmp_path / "core").exists()


def test_options_that_an_adapter_cannot_have_are_refused(
    model: Zoo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = model("llama")
    adapter = write_adapter(tmp_path / "adapter", adapter_arrays(linear_modules(folder)))
    core, out = tmp_path / "core", tmp_path / "out"
    assert _there(folder, adapter, out, "--format", "nonsense") == 1
    assert "--format nonsense: " in capsys.readouterr().err
    assert _there(folder, adapter, core) == 0
    assert launch("mcore-to-hf", "--checkpoint", core, "--out", out, "--fp8", "blockwise") == 1
    assert "only models are stored in FP8; works: without --fp8" in capsys.readouterr().err
    assert launch("hf-to-mcore", "--model", folder, "--out", out, "--rewrite") == 2
    assert "--rewrite needs --adapter DIR" in capsys.readouterr().err
    assert not out.exists()


def test_without_a_backend_an_adapter_stays_with_its_training_stack(model: Zoo, tmp_path: Path) -> None:
    from launcher.convert.lora.formats import adapter_in

    folder = model("llama")
    adapter = write_adapter(tmp_path / "adapter", adapter_arrays(linear_modules(folder)))
    for backend in ("megatron", "mindspeed"):
        core, again = tmp_path / backend, tmp_path / f"{backend} again"
        assert _there(folder, adapter, core, "--backend", backend) == 0
        assert launch("reshard", "--checkpoint", core, "--out", again) == 0
        before, after = adapter_in(core), adapter_in(again)
        assert before is not None
        assert after is not None
        assert after.name == before.name


def test_a_tp_that_does_not_divide_the_factors_is_refused_with_one_that_does(
    model: Zoo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = model("llama")
    adapter = write_adapter(tmp_path / "adapter", adapter_arrays(linear_modules(folder)))
    assert _there(folder, adapter, tmp_path / "core", "--backend", "megatron", "parallel.tp=5") == 1
    shown = capsys.readouterr().err
    assert "decoder.layers.0.mlp.linear_fc1.lora_B" in shown
    assert "192 cannot be split into 2 x 5 parts; works: parallel.tp=4 · parallel.tp=6" in shown
    assert _there(folder, adapter, tmp_path / "core", "--backend", "megatron", "parallel.tp=4") == 0


def test_a_backend_without_adapters_is_not_offered_for_one(
    model: Zoo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = model("mistral")
    adapter = write_adapter(tmp_path / "adapter", adapter_arrays(linear_modules(folder)))
    assert _there(folder, adapter, tmp_path / "core", "--backend", "megatron") == 1
    assert "works: --backend mindspeed\n" in capsys.readouterr().err
    assert _there(folder, adapter, tmp_path / "core", "--backend", "mindspeed") == 0
