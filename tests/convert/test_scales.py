"""FP8 weights are read with their own scales or not at all; nothing that is offered would make wrong values of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.convert.fp8_models import SCALE, halved, quantised_arrays, write_fp8
from tests.convert.helpers import launch
from tests.sampling import examples

Zoo = Callable[[str], Path]
Change = Callable[[dict[str, Any]], object]
ONE = "model.layers.1.self_attn.o_proj.weight"
OTHER = "model.layers.2.mlp.experts.3.down_proj.weight"
NORM = "model.layers.0.input_layernorm.weight"


def _without_scales(arrays: dict[str, Any]) -> None:
    for name in [name for name in arrays if name.endswith(SCALE)]:
        del arrays[name]


# What is changed, and what the refusal says.
CASES: dict[str, tuple[Change, tuple[str, ...]]] = {
    "all scales missing": (_without_scales, ("FP8 without scales", "model.layers.0.", "more")),
    "one missing": (lambda arrays: arrays.pop(ONE + SCALE), ("FP8 without scales", ONE)),
    "two missing": (
        lambda arrays: [arrays.pop(name + SCALE) for name in (ONE, OTHER)],
        ("FP8 without scales", ONE, OTHER),
    ),
    "another shape": (
        lambda arrays: arrays.update({ONE + SCALE: halved(arrays[ONE + SCALE])}),
        (ONE + SCALE, "[2, 1]", "expected F32 [1, 1]"),
    ),
    "another number format": (
        lambda arrays: arrays.update({ONE + SCALE: np.full((1, 1), 0x3F80, "u2")}),
        (ONE + SCALE, "is BF16", "expected F32"),
    ),
    "scales of a weight in bf16": (
        lambda arrays: arrays.update({ONE: np.full(arrays[ONE].shape, 0x3F80, "u2")}),
        (ONE + SCALE, f"{ONE} is BF16"),
    ),
    "scales without their weight": (
        lambda arrays: arrays.pop(ONE),
        (f"{ONE + SCALE} holds scales, and {ONE} is missing", f"{ONE} [64, 64] is missing"),
    ),
    "scales of something else": (
        lambda arrays: arrays.update({"model.layers.0.nothing.weight" + SCALE: np.ones((1, 1), "f4")}),
        ("model.layers.0.nothing.weight" + SCALE, "no such tensor"),
    ),
    "a norm in FP8": (lambda arrays: arrays.update({NORM: np.ones(64, "u1")}), ("FP8 without scales", NORM)),
    "a norm in FP8 with a scale": (
        lambda arrays: arrays.update({NORM: np.ones(64, "u1"), NORM + SCALE: np.ones(1, "f4")}),
        (NORM + SCALE, "for matrices only"),
    ),
}
VERBS: dict[str, tuple[str, ...]] = {
    "kept": ("reshard", "--format", "hf", "--checkpoint"),
    "kept as bf16": ("reshard", "--format", "hf", "--dtype", "bf16", "--checkpoint"),
    "torch_dist": ("hf-to-mcore", "--model"),
    "legacy in bf16": ("hf-to-mcore", "--format", "legacy", "--dtype", "bf16", "--model"),
    "mindspeed in fp32": ("hf-to-mcore", "--backend", "mindspeed", "--dtype", "fp32", "--model"),
}


@pytest.mark.parametrize("case", CASES)
def test_refused_in_every_direction(case: str, model: Zoo, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change, reported = CASES[case]
    arrays = quantised_arrays(model("deepseek_v3"))
    change(arrays)
    folder = write_fp8(tmp_path / "hf", model("deepseek_v3"), arrays)
    for args in VERBS.values():
        assert launch(*args, folder, "--out", tmp_path / "out") == 1
        captured = capsys.readouterr().err
        assert all(part in captured for part in reported), captured
        assert "--dtype" not in captured
        assert len(captured.splitlines()) < 10
        assert not (tmp_path / "out").exists()
    assert launch("verify", folder, model("deepseek_v3")) == 1
    captured = capsys.readouterr().err
    assert all(part in captured for part in reported), captured


SCHEMES: dict[str, tuple[dict[str, Any], str]] = {
    "blocks of 64": ({"weight_block_size": [64, 64]}, "weight_block_size is [64, 64]"),
    "one scale for a row": ({"quant_method": "fbgemm_fp8"}, "quant_method is 'fbgemm_fp8'"),
    "another format": ({"fmt": "e5m2"}, "fmt is 'e5m2'"),
}


@pytest.mark.parametrize("stated,reported", SCHEMES.values(), ids=SCHEMES)
def test_scales_of_another_scheme_are_refused(
    stated: dict[str, Any], reported: str, model: Zoo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tiny weights have one block whatever its size: only config.json tells."""
    folder = write_fp8(tmp_path / "hf", model("deepseek_v3"), **stated)
    assert launch("hf-to-mcore", "--model", folder, "--out", tmp_path / "out", "--dtype", "bf16") == 1
    assert reported in capsys.readouterr().err


@pytest.mark.parametrize("family", ["deepseek_v3", "qwen3_moe", "llama"])
@given(data=st.data())
@examples(8, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_scales_that_are_missing_are_noticed(
    family: str, data: st.DataObject, model: Zoo, tmp_path_factory: pytest.TempPathFactory
) -> None:
    from launcher.convert.containers.errors import ConvertError
    from launcher.convert.containers.records import Slot
    from launcher.convert.layouts.huggingface import huggingface_read
    from launcher.convert.logical import logical_model
    from launcher.convert.model import model_in

    arrays = quantised_arrays(model(family))
    scales = sorted(name for name in arrays if name.endswith(SCALE))
    gone = data.draw(st.sets(st.sampled_from(scales), min_size=1))
    names = {"uint8": "F8_E4M3", "uint16": "BF16", "float32": "F32"}
    slots = [
        Slot(name=name, shape=array.shape, dtype=names[str(array.dtype)], path=Path("x"), offset=0)
        for name, array in arrays.items()
        if name not in gone
    ]
    with pytest.raises(ConvertError) as caught:
        huggingface_read(logical_model(model_in(model(family))), slots)
    assert "FP8 without scales" in str(caught.value)
    assert any(name.removesuffix(SCALE) in str(caught.value) for name in gone)


@pytest.mark.parametrize("form", ["legacy", "torch_dist"])
def test_training_checkpoints_hold_no_fp8(
    form: str, model: Zoo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A float8 tensor of torch has no scale anywhere."""
    core = tmp_path / "core"
    assert launch("hf-to-mcore", "--model", model("llama"), "--out", core, "--format", form) == 0
    _as_float8(core)
    for args in (["mcore-to-hf"], ["mcore-to-hf", "--dtype", "bf16"], ["reshard", "--format", "legacy"]):
        assert launch(*args, "--checkpoint", core, "--out", tmp_path / "out") == 1
        captured = capsys.readouterr().err
        assert "FP8 without scales" in captured
        assert "linear_proj.weight" in captured
        assert "--dtype" not in captured
    assert launch("verify", core, model("llama")) == 1


def _as_float8(core: Path) -> None:
    """Write every output projection of a checkpoint as float8_e4m3fn, by torch itself."""
    import torch

    file = next(core.rglob("*.pt"))
    if file.name != "common.pt":
        tree = torch.load(file, weights_only=False)
        for name, value in tree["model"].items():
            if name.endswith("linear_proj.weight"):
                tree["model"][name] = value.to(torch.float8_e4m3fn)
        torch.save(tree, file)
        return
    import torch.distributed.checkpoint as dcp

    folder = file.parent
    kept = file.read_bytes()
    reader = dcp.FileSystemReader(folder)
    known = reader.read_metadata().state_dict_metadata
    tree = {
        key: torch.empty(entry.size, dtype=entry.properties.dtype)
        for key, entry in known.items()
        if hasattr(entry, "size")
    }
    dcp.load(tree, storage_reader=reader, no_dist=True)
    changed = {
        key: value.to(torch.float8_e4m3fn) if key.endswith("linear_proj.weight") else value
        for key, value in tree.items()
    }
    for old in (*folder.glob("*.distcp"), folder / ".metadata"):
        old.unlink()
    dcp.save(changed, storage_writer=dcp.FileSystemWriter(folder), no_dist=True)
    file.write_bytes(kept)
