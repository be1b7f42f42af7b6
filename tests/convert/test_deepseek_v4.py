"""DeepSeek-V4: other spellings of its files, and its release in FP8 and MXFP4."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from launcher.convert.containers import torch_dist
from tests.convert.adapters import adapter_arrays, write_adapter
from tests.convert.deepseek_v4 import released
from tests.convert.helpers import launch, tensors

Zoo = Callable[[str], Path]
NAME = "deepseek_v4"


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Zoo], tuple[Path, dict[str, bytes]]]:
    """A model to its release, and the bytes that transformers reads."""
    root = tmp_path_factory.mktemp("release")
    made: dict[str, tuple[Path, dict[str, bytes]]] = {}

    def make(model: Zoo) -> tuple[Path, dict[str, bytes]]:
        if not made:
            made["it"] = released(model(NAME), root / "hf")
        return made["it"]

    return make


def _changed(folder: Path, out: Path, change: Callable[[dict[str, Any]], Any]) -> Path:
    from safetensors.torch import load_file, save_file

    arrays = load_file(folder / "model.safetensors")
    change(arrays)
    out.mkdir()
    save_file(arrays, out / "model.safetensors")
    (out / "config.json").write_text((folder / "config.json").read_text())
    return out


def test_values_are_those_that_transformers_reads(
    release: Any, model: Zoo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder, expected), core, back = release(model), tmp_path / "core", tmp_path / "back"
    assert launch("hf-to-mcore", "--model", folder, "--out", core, "--dtype", "bf16") == 0
    shown = capsys.readouterr().out
    assert "60 tensors in MXFP4 (blocks of 32 values with a scale) are read as their values, in bf16: exact" in shown
    assert "none was rounded" in shown
    assert launch("mcore-to-hf", "--checkpoint", core, "--model", folder, "--out", back) == 0
    assert {name: data for name, (_, _, data) in tensors(back).items()} == expected
    config = json.loads((back / "config.json").read_text())
    assert not {"quantization_config", "expert_dtype"} & set(config)
    for pair in ((folder, core), (core, folder), (folder, back), (folder, folder)):
        assert launch("verify", *pair, "--model", folder) == 0


def test_a_release_needs_a_number_format_that_its_target_holds(
    release: Any, model: Zoo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert launch("hf-to-mcore", "--model", release(model)[0], "--out", tmp_path / "core") == 1
    assert "works: --dtype bf16" in capsys.readouterr().err


def test_its_scales_are_read_and_not_written(
    release: Any, model: Zoo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    core, args = tmp_path / "core", ("--out", tmp_path / "back", "--fp8", "blockwise")
    assert launch("hf-to-mcore", "--model", model(NAME), "--out", core, "--dtype", "bf16") == 0
    assert launch("mcore-to-hf", "--checkpoint", core, "--model", release(model)[0], *args) == 1
    assert "quantization_config.scale_fmt is 'ue8m0'" in capsys.readouterr().err


FP8, FP4 = "layers.2.attn.wq_a", "layers.3.ffn.experts.1.w2"
WRONG: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "FP8 without scales": (lambda found: found.pop(f"{FP8}.scale"), f"FP8 without scales: {FP8}.weight"),
    "MXFP4 without scales": (lambda found: found.pop(f"{FP4}.scale"), f"{FP4}.weight (MXFP4) has no scales"),
    "fewer scales": (
        lambda found: found.update({f"{FP4}.scale": found[f"{FP4}.scale"][:7].contiguous()}),
        "is F8_E8M0 [7, 1], expected F8_E8M0 [64, 1]: MXFP4 of [64, 32]",
    ),
    "NaN in FP8": (lambda found: found[f"{FP8}.scale"].view(_byte()).fill_(255), "2 of 2 scales are NaN"),
    "NaN in MXFP4": (lambda found: found[f"{FP4}.scale"][:3].view(_byte()).fill_(255), "3 of "),
    "an expert that does not exist": (
        lambda found: found["layers.0.ffn.gate.tid2eid"].fill_(1 << 40),
        "I32 cannot hold them",
    ),
}


def _byte() -> Any:
    import torch

    return torch.uint8


@pytest.mark.parametrize("change,why", WRONG.values(), ids=WRONG)
def test_incomplete_or_corrupt_weights_are_refused(
    change: Callable[[dict[str, Any]], None],
    why: str,
    release: Any,
    model: Zoo,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = _changed(release(model)[0], tmp_path / "hf", change)
    assert launch("hf-to-mcore", "--model", folder, "--out", tmp_path / "core", "--dtype", "bf16") == 1
    assert why in capsys.readouterr().err
    assert not (tmp_path / "core").exists()


def test_names_that_transformers_writes_are_read(model: Zoo, tmp_path: Path) -> None:
    import torch
    import transformers

    plain = transformers.AutoModelForCausalLM.from_pretrained(model(NAME), dtype=torch.float32)
    plain.save_pretrained(tmp_path / "hf")
    written = set(tensors(tmp_path / "hf"))
    assert {"model.embed_tokens.weight", "model.hc_head.hc_fn", "model.layers.0.attn.norm.weight"} <= written
    assert launch("hf-to-mcore", "--model", tmp_path / "hf", "--out", tmp_path / "core") == 0
    assert launch("mcore-to-hf", "--checkpoint", tmp_path / "core", "--out", tmp_path / "back") == 0
    own = {name: found for name, found in tensors(model(NAME)).items() if not name.startswith("mtp.")}
    assert tensors(tmp_path / "back") == own


def test_a_model_without_copies_in_its_mtp_layer_gets_them(model: Zoo, tmp_path: Path) -> None:
    copies = ("mtp.0.emb.tok_emb.weight", "mtp.0.head.weight")
    folder = _changed(model(NAME), tmp_path / "hf", lambda found: [found.pop(name) for name in copies])
    assert launch("hf-to-mcore", "--model", folder, "--out", tmp_path / "core") == 0
    assert launch("mcore-to-hf", "--checkpoint", tmp_path / "core", "--out", tmp_path / "back") == 0
    assert tensors(tmp_path / "back") == tensors(model(NAME))


@pytest.mark.parametrize("size", [[], ["parallel.tp=2"]], ids=str)
def test_experts_of_tokens_are_padded_in_files_of_ranks(size: list[str], model: Zoo, tmp_path: Path) -> None:
    """mindspeed_llm/core/transformer/moe/router.py:368 @master: a row for each of padded_vocab_size."""
    core = tmp_path / "core"
    args = (
        "--model",
        model(NAME),
        "--out",
        core,
        "--backend",
        "mindspeed",
        "tokenizer.make_vocab_size_divisible_by=64",
    )
    assert launch("hf-to-mcore", *args, *size) == 0
    assert launch("mcore-to-hf", "--checkpoint", core, "--out", tmp_path / "back") == 0
    assert tensors(tmp_path / "back") == tensors(model(NAME))


def test_experts_of_tokens_are_padded_with_the_vocabulary(model: Zoo, tmp_path: Path) -> None:
    core = tmp_path / "core"
    args = ("--model", model(NAME), "--out", core, "tokenizer.make_vocab_size_divisible_by=64")
    assert launch("hf-to-mcore", *args) == 0
    shapes = {chunk.key: (chunk.global_shape, chunk.slot.dtype) for chunk in torch_dist.read(core).chunks}
    assert shapes["decoder.layers.1.mlp.router.tid2eid"] == ((320, 2), "I32")
    assert "decoder.layers.2.mlp.router.tid2eid" not in shapes
    assert launch("mcore-to-hf", "--checkpoint", core, "--out", tmp_path / "back") == 0
    assert tensors(tmp_path / "back") == tensors(model(NAME))


def test_adapters_are_refused(model: Zoo, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    modules = {"layers.0.attn.wq_a": (256, 64)}
    adapter = write_adapter(tmp_path / "adapter", adapter_arrays(modules))
    args = ("--model", model(NAME), "--adapter", adapter, "--out", tmp_path / "out")
    assert launch("hf-to-mcore", *args) == 1
    assert "adapters of deepseek_v4 are not converted" in capsys.readouterr().err
