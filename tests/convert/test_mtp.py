"""MTP layers of DeepSeek-V3 and GLM: the real GPTModel loads it, and predicts what transformers' modules predict."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
from core_world import Zygote

from tests.convert import zoo
from tests.convert.core_logits import megatron_argv
from tests.convert.helpers import arrays_of, launch, tensors, with_mtp, with_next_mtp, write

TOLERANCE = 1e-4
LAYOUTS = {
    "one rank": ("deepseek_v3", []),
    "pp2": ("deepseek_v3", ["parallel.pp=2"]),
    "ep2": ("deepseek_v3", ["parallel.ep=2"]),
    "glm4_moe tp2": ("glm4_moe", ["parallel.tp=2", "parallel.sequence_parallel=true"]),
    "glm4_moe_lite": ("glm4_moe_lite", []),
}


@pytest.fixture(scope="module")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    pytest.importorskip("megatron.core", reason="the extra `rehearsal` is not installed")
    with Zygote(tmp_path_factory.mktemp("ranks")) as process:
        yield process


def _expected(folder: Path, tokens: Any, scratch: Path) -> tuple[Any, Any]:
    """Logits of the MTP layer and of the model, from transformers: the layer as a model of one layer.

    What goes in is what megatron-core 0.16.1 joins (multi_token_prediction.py): the next token's embedding and the
    model's last hidden state, each through its norm.
    """
    import torch
    import transformers

    kept = {name: array.copy() for name, array in arrays_of(folder).items()}
    config = json.loads((folder / "config.json").read_text())
    layer = f"model.layers.{config['num_hidden_layers']}."
    inside = {name.removeprefix(layer): array for name, array in kept.items() if name.startswith(layer)}
    own = ("enorm", "hnorm", "eh_proj", "shared_head", "embed_tokens")
    one = {f"model.layers.0.{name}": array for name, array in inside.items() if not name.startswith(own)}
    outer = {name: kept[name] for name in ("model.embed_tokens.weight", "lm_head.weight")}
    small = {**config, "num_hidden_layers": 1, "first_k_dense_replace": 0, "num_nextn_predict_layers": 0}
    small.update(
        {key: config[key][-1:] for key in ("mlp_layer_types", "layer_types", "indexer_types") if key in config}
    )
    write(scratch, {**one, **outer, "model.norm.weight": inside["shared_head.norm.weight"]}, small)
    model, predictor = (
        transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()
        for path in (folder, scratch)
    )
    with torch.no_grad():
        ids = torch.from_numpy(tokens)
        hidden = model.model(ids).last_hidden_state
        following = torch.cat([ids[:, 1:], torch.zeros_like(ids[:, :1])], dim=1)
        embedded = model.model.embed_tokens(following)
        normed = [
            torch.nn.functional.rms_norm(
                value, value.shape[-1:], torch.from_numpy(inside[name]), config["rms_norm_eps"]
            )
            for value, name in ((embedded, "enorm.weight"), (hidden, "hnorm.weight"))
        ]
        joined = torch.cat(normed, dim=-1) @ torch.from_numpy(inside["eh_proj.weight"]).T
        return predictor(inputs_embeds=joined).logits.numpy(), model.lm_head(hidden).numpy()


@pytest.mark.slow
@pytest.mark.parametrize("form", ["torch_dist", "legacy"])
@pytest.mark.parametrize("name,overrides", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_the_mtp_layer_predicts_the_same(
    name: str, overrides: list[str], form: str, model: Callable[[str], Path], zygote: Zygote, tmp_path: Path
) -> None:
    folder, out = with_mtp(model, tmp_path / "hf", name), tmp_path / "core"
    args = ["--layers", "local", "--format", form, *overrides]
    assert launch("hf-to-mcore", "--model", folder, "--out", out, *args) == 0
    tokens = numpy.random.default_rng(0).integers(1, zoo.BASE["vocab_size"], (2, 32))
    numpy.save(tmp_path / "tokens.npy", tokens)
    ranks = 2 if overrides else 1
    argv = megatron_argv(str(folder), *overrides, world=ranks)
    args = [str(out), str(tmp_path / "tokens.npy"), str(tmp_path / "logits.npy"), *argv]
    codes, log = zygote.call("tests.convert.core_logits:main", args, ranks=ranks)
    assert codes == [0] * ranks, log
    ahead, itself = numpy.load(tmp_path / "logits.npy")
    expected_ahead, expected_itself = _expected(folder, tokens, tmp_path / "layer")
    assert numpy.abs(itself - expected_itself).max() < TOLERANCE
    assert numpy.abs(ahead - expected_ahead).max() < TOLERANCE
    # The control: both are far apart, so that neither stands in for the other.
    assert numpy.abs(ahead - itself).max() > 100 * TOLERANCE


LOCAL = {
    "qwen3": ("qwen3", ["--format", "torch_dist"]),
    "qwen3_moe": ("qwen3_moe", ["--format", "torch_dist", "parallel.tp=2", "parallel.ep=2"]),
    "deepseek_v2_lite": ("deepseek_v2_lite", ["--format", "torch_dist"]),
    "deepseek_v3 with MTP": ("deepseek_v3_mtp", ["--format", "torch_dist"]),
    "deepseek_v3 with MTP, legacy": ("deepseek_v3_mtp", ["--format", "legacy", "parallel.pp=2", "parallel.ep=2"]),
    "qwen2_moe, legacy": ("qwen2_moe", ["--format", "legacy", "parallel.tp=2"]),
}


@pytest.mark.sample(keep=2)
@pytest.mark.parametrize("name,args", LOCAL.values(), ids=LOCAL.keys())
def test_local_layers_come_back_and_equal_the_others(
    name: str, args: list[str], model: Callable[[str], Path], tmp_path: Path
) -> None:
    """Names of megatron-core's local layers: there and back, and the same weights as with Transformer Engine's."""
    folder = with_mtp(model, tmp_path / "hf") if name.endswith("_mtp") else model(name)
    for layers in ("local", "transformer_engine"):
        out = tmp_path / layers
        assert launch("hf-to-mcore", "--model", folder, "--out", out, "--layers", layers, *args) == 0
        assert launch("mcore-to-hf", "--checkpoint", out, "--model", folder, "--out", tmp_path / f"{layers}_back") == 0
        assert tensors(tmp_path / f"{layers}_back") == tensors(folder)
    assert launch("verify", tmp_path / "local", tmp_path / "transformer_engine", "--model", folder) == 0


def test_a_layer_that_config_json_does_not_mention_comes_back(
    model: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, core, back = with_next_mtp(model, tmp_path / "hf"), tmp_path / "core", tmp_path / "back"
    assert launch("hf-to-mcore", "--model", folder, "--out", core, "--backend", "megatron") == 0
    assert "1 MTP layer(s), which config.json does not mention: model.num_nextn_predict_layers=1" in (
        capsys.readouterr().out
    )
    assert launch("mcore-to-hf", "--checkpoint", core, "--out", back) == 0
    assert tensors(back) == tensors(folder)
    for pair in ((folder, core), (core, back)):
        assert launch("verify", *pair, "--model", folder) == 0
    assert launch("verify", core, model("qwen3_next"), "--model", folder) == 1
