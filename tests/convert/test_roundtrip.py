"""There and back: every byte, for every family; other spellings of Hugging Face; what is tied, copied or dropped."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

from tests.convert import zoo
from tests.convert.helpers import arrays_of, launch, tensors, with_mtp, write


def _there_and_back(folder: Path, tmp_path: Path, *options: str) -> dict[str, Any]:
    core, back = tmp_path / "core", tmp_path / "back"
    assert launch("hf-to-mcore", "--model", folder, "--out", core, *options) == 0
    assert launch("mcore-to-hf", "--checkpoint", core, "--out", back) == 0
    return tensors(back)


@pytest.mark.sample(keep=6)
@pytest.mark.parametrize("options", [(), ("--layers", "local"), ("parallel.tp=4", "--workers", "1")], ids=str)
@pytest.mark.parametrize("name", zoo.MODELS)
def test_every_byte_comes_back(
    name: str, options: tuple[str, ...], model: Callable[[str], Path], tmp_path: Path
) -> None:
    assert _there_and_back(model(name), tmp_path, *options) == tensors(model(name))
    file = "model.safetensors"
    assert (tmp_path / "back" / file).read_bytes() == (model(name) / file).read_bytes()


@pytest.mark.parametrize("layers", ["transformer_engine", "local"])
def test_padding_goes_in_and_out(
    layers: str, model: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--layers", layers, "tokenizer.make_vocab_size_divisible_by=64", "parallel.tp=2")
    assert _there_and_back(model("llama"), tmp_path, *options) == tensors(model("llama"))
    assert "of vocabulary padding in the source are dropped" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("name", ["qwen3_moe", "deepseek_v3"])
def test_reshard_changes_the_layer_names(name: str, model: Callable[[str], Path], tmp_path: Path) -> None:
    from launcher.convert.containers import torch_dist

    first, second = tmp_path / "first", tmp_path / "second"
    assert launch("hf-to-mcore", "--model", model(name), "--out", first) == 0
    args = ("--format", "torch_dist", "--layers", "local")
    assert launch("reshard", "--checkpoint", first, "--out", second, *args) == 0
    keys = [{chunk.key for chunk in torch_dist.read(folder).chunks} for folder in (first, second)]
    assert keys[0] != keys[1]
    assert launch("verify", second, model(name)) == 0


def test_config_and_tokenizer_travel_along(model: Callable[[str], Path], tmp_path: Path) -> None:
    folder = write(tmp_path / "hf", arrays_of(model("llama")), (model("llama") / "config.json").read_text())
    (folder / "tokenizer.json").write_text("{}")
    _there_and_back(folder, tmp_path)
    assert (tmp_path / "back" / "tokenizer.json").read_text() == "{}"
    assert json.loads((tmp_path / "back" / "config.json").read_text()) == json.loads(
        (folder / "config.json").read_text()
    )


@pytest.mark.parametrize("name", ["qwen3_moe", "qwen2_moe", "mixtral", "deepseek_v3"])
def test_fused_experts_of_transformers_5_are_read(name: str, model: Callable[[str], Path], tmp_path: Path) -> None:
    plain = arrays_of(model(name))
    folder = write(tmp_path / "hf", _fused(plain), (model(name) / "config.json").read_text())
    assert _there_and_back(folder, tmp_path) == tensors(model(name))


def _fused(plain: dict[str, Any]) -> dict[str, Any]:
    """Experts as transformers 5 holds them in memory."""
    found = {name: array for name, array in plain.items() if ".experts." not in name}
    names = [("gate_proj", "up_proj", "down_proj"), ("w1", "w3", "w2")]
    prefixes = sorted({name.split(".experts.")[0] for name in plain if ".experts." in name})
    for prefix in prefixes:
        gate, up, down = names[f"{prefix}.experts.0.w1.weight" in plain]
        count = len([name for name in plain if name.startswith(f"{prefix}.experts.")]) // 3
        expert = [f"{prefix}.experts.{index}." for index in range(count)]
        pairs = [numpy.concatenate([plain[f"{e}{gate}.weight"], plain[f"{e}{up}.weight"]]) for e in expert]
        stem = prefix.replace("block_sparse_moe", "mlp")
        found[f"{stem}.experts.gate_up_proj"] = numpy.stack(pairs)
        found[f"{stem}.experts.down_proj"] = numpy.stack([plain[f"{e}{down}.weight"] for e in expert])
    return {name.replace("block_sparse_moe.gate", "mlp.gate"): array for name, array in found.items()}


@pytest.mark.parametrize("layers", ["transformer_engine", "local"])
def test_mtp_layers_come_back_with_their_copies(layers: str, model: Callable[[str], Path], tmp_path: Path) -> None:
    folder = with_mtp(model, tmp_path / "hf")
    assert _there_and_back(folder, tmp_path, "--layers", layers) == tensors(folder)


def test_a_copy_that_is_none_is_noticed(
    model: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = {"model.layers.4.embed_tokens.weight": numpy.ones((270, 64), dtype="float32")}
    folder = with_mtp(model, tmp_path / "hf", **other)
    assert launch("hf-to-mcore", "--model", folder, "--out", tmp_path / "core") == 1
    assert "model.layers.4.embed_tokens.weight" in capsys.readouterr().err
    assert not (tmp_path / "core").exists()


def test_mtp_layers_that_only_the_configuration_has_are_reported(
    model: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = json.loads((model("deepseek_v3") / "config.json").read_text())
    config["num_nextn_predict_layers"] = 1
    folder = write(tmp_path / "hf", arrays_of(model("deepseek_v3")), config)
    assert _there_and_back(folder, tmp_path) == tensors(model("deepseek_v3"))
    assert "the files hold none" in capsys.readouterr().out


def test_computed_tensors_are_dropped_by_name(
    model: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = {"model.layers.0.self_attn.rotary_emb.inv_freq": numpy.ones(8, dtype="float32")}
    folder = write(tmp_path / "hf", {**arrays_of(model("llama")), **old}, (model("llama") / "config.json").read_text())
    assert _there_and_back(folder, tmp_path) == tensors(model("llama"))
    assert "computed from config.json" in capsys.readouterr().out


def test_verify_finds_one_changed_byte(
    model: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    core = tmp_path / "core"
    assert launch("hf-to-mcore", "--model", model("qwen3_moe"), "--out", core) == 0
    assert launch("verify", model("qwen3_moe"), core) == 0
    arrays = {name: array.copy() for name, array in arrays_of(model("qwen3_moe")).items()}
    arrays["model.layers.2.mlp.experts.1.up_proj.weight"][3, 5] += 1
    other = write(tmp_path / "other", arrays, (model("qwen3_moe") / "config.json").read_text())
    capsys.readouterr()
    assert launch("verify", other, core) == 1
    shown = capsys.readouterr().out
    assert "model.layers.2.mlp.experts.1.up_proj.weight" in shown
    assert "1 of" in shown


@pytest.mark.parametrize("name", ["internlm2", "llama4_text"])
def test_a_model_is_not_taken_for_a_checkpoint_with_names_like_its_own(
    name: str, model: Callable[[str], Path], tmp_path: Path
) -> None:
    """MindFormers' older classes call tensors of a layer attention and feed_forward, too."""
    core = tmp_path / "core"
    assert launch("hf-to-mcore", "--model", model(name), "--out", core) == 0
    assert launch("verify", model(name), core) == 0
    assert launch("verify", core, model(name)) == 0


@pytest.mark.parametrize(
    "target",
    [
        ("--format", "legacy"),
        ("--backend", "mindspeed", "parallel.pp=2"),
        ("--backend", "mindformers", "--set", "per_rank=true"),
        ("--backend", "mindformers", "--set", "per_rank=true", "--set", "use_legacy=true", "--set", "version=1.6"),
        ("--format", "torch_dist"),
    ],
    ids=" ".join,
)
def test_a_rank_may_hold_padding_of_the_vocabulary_alone(
    target: tuple[str, ...], model: Callable[[str], Path], tmp_path: Path
) -> None:
    name = "qwen3_moe" if "per_rank=true" in target and "use_legacy=true" not in target else "llama"
    args = (*target, "parallel.tp=2", "tokenizer.padded_vocab_size=768")  # of 270
    assert _there_and_back(model(name), tmp_path, *args) == tensors(model(name))
    assert launch("reshard", "--checkpoint", tmp_path / "core", "--out", tmp_path / "again", "--format", "hf") == 0
    assert launch("verify", tmp_path / "core", tmp_path / "again") == 0
