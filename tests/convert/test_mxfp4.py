"""gpt-oss as it is published, its experts in MXFP4: read as the values that transformers reads."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.convert.helpers import launch, tensors

Zoo = Callable[[str], Path]
PARTS = ("gate_up_proj", "down_proj")


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Zoo], tuple[Path, dict[str, bytes]]]:
    """A model to its release in MXFP4, and the bytes of the experts as transformers reads them."""
    root, made = tmp_path_factory.mktemp("mxfp4"), {}

    def make(model: Zoo) -> tuple[Path, dict[str, bytes]]:
        if not made:
            made["it"] = _release(model("gpt_oss"), root / "hf")
        return made["it"]

    return make


def _release(folder: Path, out: Path) -> tuple[Path, dict[str, bytes]]:
    import torch
    from safetensors.torch import load_file, save_file
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    torch.manual_seed(0)
    found: dict[str, Any] = {}
    expected: dict[str, bytes] = {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        if not name.endswith(PARTS):
            found[name] = tensor.to(torch.bfloat16)
            continue
        experts, columns, rows = tensor.shape
        blocks = torch.randint(0, 256, (experts, rows, columns // 32, 16), dtype=torch.uint8)
        scales = torch.randint(90, 140, (experts, rows, columns // 32), dtype=torch.uint8)
        found[f"{name}_blocks"], found[f"{name}_scales"] = blocks, scales
        expected[name] = convert_moe_packed_tensors(blocks, scales).view(torch.uint8).numpy().tobytes()
    out.mkdir()
    save_file(found, out / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    method = {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}
    (out / "config.json").write_text(json.dumps({**config, "dtype": "bfloat16", "quantization_config": method}))
    return out, expected


# With tp 4 a rank's 24 columns of the down projection are less than a block.
TARGETS: dict[str, tuple[str, ...]] = {
    "torch_dist": (),
    "legacy": ("--format", "legacy", "parallel.tp=4", "parallel.ep=2"),
}


@pytest.mark.parametrize("args", TARGETS.values(), ids=TARGETS)
def test_values_are_those_that_transformers_reads(
    args: tuple[str, ...], released: Any, model: Zoo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder, expected), core, back = released(model), tmp_path / "core", tmp_path / "back"
    assert launch("hf-to-mcore", "--model", folder, "--out", core, *args) == 0
    shown = capsys.readouterr().out
    assert "8 tensors in MXFP4 (blocks of 32 values with a scale) are read as their values, in bf16: exact" in shown
    assert "none was rounded" in shown
    assert launch("mcore-to-hf", "--checkpoint", core, "--model", folder, "--out", back) == 0
    found = tensors(back)
    assert {name: found[name][2] for name in expected} == expected
    assert "quantization_config" not in json.loads((back / "config.json").read_text())
    for pair in ((folder, core), (core, folder), (folder, back), (folder, folder)):
        assert launch("verify", *pair, "--model", folder) == 0


def _changed(folder: Path, out: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    from safetensors.torch import load_file, save_file

    arrays = load_file(folder / "model.safetensors")
    change(arrays)
    out.mkdir()
    save_file(arrays, out / "model.safetensors")
    (out / "config.json").write_text((folder / "config.json").read_text())
    return out


DOWN = "model.layers.2.mlp.experts.down_proj"
WRONG: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "no scales": (lambda found: found.pop(f"{DOWN}_scales"), f"{DOWN}_blocks (MXFP4) has no {DOWN}_scales"),
    "no blocks": (lambda found: found.pop(f"{DOWN}_blocks"), f"{DOWN}_scales"),
    "fewer scales": (
        lambda found: found.update({f"{DOWN}_scales": found[f"{DOWN}_scales"][:, :, :2].contiguous()}),
        f"{DOWN}_scales is U8 [4, 64, 2], expected U8 [4, 64, 3]",
    ),
    "NaN": (lambda found: found[f"{DOWN}_scales"][1, 5].fill_(255), "3 of "),
}


@pytest.mark.parametrize("change,why", WRONG.values(), ids=WRONG)
def test_incomplete_or_corrupt_weights_are_refused(
    change: Callable[[dict[str, Any]], None],
    why: str,
    released: Any,
    model: Zoo,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = _changed(released(model)[0], tmp_path / "hf", change)
    assert launch("hf-to-mcore", "--model", folder, "--out", tmp_path / "core") == 1
    assert why in capsys.readouterr().err
    assert not (tmp_path / "core").exists()
