"""FP8 with blockwise scales: kept where it can be, refused with what works where it cannot, made anew on export."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from launcher.convert.casts import decode, dequantised, encode
from launcher.convert.fp8 import e4m3, quantised_block
from tests.convert import zoo
from tests.convert.helpers import arrays_of, launch, tensors, write

Zoo = Callable[[str], Path]
SCALE = "_scale_inv"
PLAIN = ("embed_tokens", "lm_head", "gate.weight", "norm", "bias", "eh_proj", "shared_head")
# Wider than a block, and not a multiple of one.
WIDE = {"hidden_size": 192, "intermediate_size": 320, "moe_intermediate_size": 160}


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A DeepSeek-V3 in bf16 whose weights have several blocks."""
    folder = tmp_path_factory.mktemp("wide")
    zoo.MODELS["wide"] = ("DeepseekV3Config", {**zoo.MODELS["deepseek_v3"][1], **WIDE})
    try:
        return zoo.make("wide", folder / "hf", dtype="bfloat16")
    finally:
        del zoo.MODELS["wide"]


@pytest.fixture(scope="module")
def published(wide: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as DeepSeek publishes it: linear layers in FP8, scales beside them, both declared in config.json."""
    arrays: dict[str, Any] = {}
    for name, (dtype, shape, data) in tensors(wide).items():
        kind = {"BF16": np.uint16, "F32": np.float32}[dtype]
        args = np.frombuffer(data, kind).reshape(shape)
        if len(shape) == 2 and not any(arg in name for arg in PLAIN):
            quantised, scales = quantised_block(decode(args, dtype))
            arrays[name], arrays[name + SCALE] = quantised, scales
        else:
            arrays[name] = args
    config = json.loads((wide / "config.json").read_text())
    block = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
    return write(tmp_path_factory.mktemp("fp8") / "hf", arrays, {**config, "quantization_config": block})


def _all(folder: Path) -> dict[str, Any]:
    return tensors(folder)


def test_words_are_those_of_torch() -> None:
    random = np.random.default_rng(0)
    numbers = (random.standard_normal(200_000) * 10.0 ** random.uniform(-6, 2.6, 200_000)).astype(np.float32)
    ties = np.concatenate([np.arange(-460, 460, 0.0625), np.arange(-300, 300) / 1024]).astype(np.float32)
    codes = decode(np.arange(256, dtype=np.uint8), "F8_E4M3")
    for values in (numbers, ties, codes[np.isfinite(codes)]):
        expected = torch.from_numpy(np.clip(values, -448, 448)).to(torch.float8_e4m3fn).view(torch.uint8).numpy()
        assert np.array_equal(e4m3(values), expected)


@pytest.mark.parametrize("dtype", ["BF16", "F32"])
def test_values_that_came_from_fp8_give_the_same_words(dtype: str) -> None:
    """Scales come back exactly from float32; from bf16 the largest value of a block is rounded, and so is the scale."""
    values = np.random.default_rng(0).standard_normal((300, 200)).astype(np.float32) * 0.02
    args, scales = quantised_block(values)
    again, rescaled = quantised_block(decode(encode(dequantised(args.copy(), "F8_E4M3", scales, 0, 0), dtype), dtype))
    assert np.array_equal(again, args)
    assert np.abs(rescaled / scales - 1).max() <= (2**-8 if dtype == "BF16" else 0)


def test_no_value_is_further_off_than_half_a_step() -> None:
    values = np.random.default_rng(1).standard_normal((130, 257)).astype(np.float32)
    values[:128, :128] = 0
    args, scales = quantised_block(values)
    found = dequantised(args.copy(), "F8_E4M3", scales, 0, 0)
    largest = np.repeat(np.repeat(scales * 448, 128, 0)[:130], 128, 1)[:, :257]
    assert (np.abs(found - values) <= np.maximum(np.abs(values) * 2**-4, largest * 2**-18)).all()
    assert scales[0, 0] == 1
    assert not found[:128, :128].any()


def test_kept_between_hugging_face_folders(published: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert launch("reshard", "--checkpoint", published, "--out", out, "--format", "hf") == 0
    assert _all(out) == _all(published)
    assert json.loads((out / "config.json").read_text()) == json.loads((published / "config.json").read_text())


@pytest.mark.parametrize("args", [["--format", "torch_dist"], ["--format", "legacy"], ["--backend", "mindformers"]])
def test_refused_where_nothing_could_load_it(
    args: list[str], published: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert launch("hf-to-mcore", "--model", published, "--out", tmp_path / "out", *args) == 1
    reported = capsys.readouterr().err
    assert "are FP8 with blockwise scales" in reported
    assert "works: --dtype bf16, and mcore-to-hf --fp8 blockwise on the way back" in reported
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_a_block_with_no_number_has_no_scale(number: float) -> None:
    values: Any = np.ones((256, 130), np.float32)
    values[3, 5] = number
    _, scales = quantised_block(values)
    assert np.isfinite(scales).tolist() == [[False, True], [True, True]]


@pytest.mark.parametrize("arg", [0x7FC0, 0x7F80, 0xFF80], ids=["nan", "infinity", "-infinity"])
def test_no_number_is_refused(arg: int, wide: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In FP8 it would be 448 times the scale."""
    name = "model.layers.0.mlp.gate_proj.weight"
    arrays = arrays_of(wide)
    arrays[name] = arrays[name].copy()
    arrays[name][130, 5] = arg
    broken = write(tmp_path / "broken", arrays, (wide / "config.json").read_text())
    args = ["--format", "hf", "--fp8", "blockwise"]
    assert launch("reshard", "--checkpoint", broken, "--out", tmp_path / "out", *args) == 1
    assert f"{name}: not a number or infinite in rows" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def _through(published: Path, folder: Path) -> Path:
    core = folder / "core"
    assert launch("hf-to-mcore", "--model", published, "--out", core, "--dtype", "bf16", "--format", "torch_dist") == 0
    return core


@pytest.fixture(scope="module")
def odd(published: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The published model with scales that its bf16 values do not tell: to quantise these gives others."""
    arrays = arrays_of(published)
    changed = {name: value * np.float32(1.37) for name, value in arrays.items() if name.endswith(SCALE)}
    text = (published / "config.json").read_text()
    return write(tmp_path_factory.mktemp("odd") / "hf", {**arrays, **changed}, text)


def test_scales_that_values_do_not_tell_are_not_found_without_the_original(odd: Path, tmp_path: Path) -> None:
    core, back = _through(odd, tmp_path), tmp_path / "back"
    assert launch("mcore-to-hf", "--checkpoint", core, "--out", back, "--fp8", "blockwise") == 0
    assert _all(back) != _all(odd)


def test_what_was_not_trained_comes_back_to_the_byte(odd: Path, tmp_path: Path) -> None:
    core, back = _through(odd, tmp_path), tmp_path / "back"
    args = ["--fp8", "blockwise", "--model", odd]
    assert launch("mcore-to-hf", "--checkpoint", core, "--out", back, *args) == 0
    assert _all(back) == _all(odd)
    assert json.loads((back / "config.json").read_text())["quantization_config"]["fmt"] == "e4m3"


def test_scales_that_are_powers_of_two_are_kept_as_float32(published: Path, tmp_path: Path) -> None:
    """An original whose scales are stored as exponents, undeclared: the same numbers come back as float32."""
    from safetensors.torch import save_file

    arrays = arrays_of(published)
    exponents = {
        name: np.random.default_rng(0).integers(118, 124, value.shape, np.uint8)
        for name, value in arrays.items()
        if name.endswith(SCALE)
    }
    floats = {name: np.ldexp(np.float32(1), value.astype(np.int32) - 127) for name, value in exponents.items()}
    text = (published / "config.json").read_text()
    wanted = write(tmp_path / "floats", {**arrays, **floats}, text)
    stored = write(tmp_path / "exponents", {**arrays, **floats}, text)
    kinds = {"uint8": torch.float8_e4m3fn, "uint16": torch.bfloat16}
    plain = {
        name: torch.from_numpy(value).view(kinds[str(value.dtype)])
        if str(value.dtype) in kinds
        else torch.from_numpy(value)
        for name, value in {**arrays, **floats}.items()
    }
    powers = {name: torch.from_numpy(value).view(torch.float8_e8m0fnu) for name, value in exponents.items()}
    (file,) = stored.glob("*.safetensors")
    save_file({**plain, **powers}, file)
    core, back = _through(stored, tmp_path), tmp_path / "back"
    args = ["--fp8", "blockwise", "--model", stored]
    assert launch("mcore-to-hf", "--checkpoint", core, "--out", back, *args) == 0
    assert _all(back) == _all(wanted)


def test_what_was_trained_is_quantised_again_block_by_block(odd: Path, tmp_path: Path) -> None:
    """One value of one block changes: its block has new words and a new scale, all others have the old ones."""
    import os

    from launcher.convert.containers import safetensors

    bf16, changed, back = tmp_path / "bf16", tmp_path / "changed", tmp_path / "back"
    assert launch("reshard", "--checkpoint", odd, "--out", bf16, "--format", "hf", "--dtype", "bf16") == 0
    name = "model.layers.0.mlp.gate_proj.weight"
    slot = next(slot for slot in safetensors.read(bf16).slots if slot.name == name)
    at = slot.offset + 2 * (130 * slot.shape[1] + 5)
    descriptor = os.open(slot.path, os.O_RDWR)
    os.pwrite(descriptor, np.uint16(0x4080).tobytes(), at)
    os.close(descriptor)
    assert launch("hf-to-mcore", "--model", bf16, "--out", changed) == 0
    args = ["--fp8", "blockwise", "--model", odd]
    assert launch("mcore-to-hf", "--checkpoint", changed, "--out", back, *args) == 0
    old, new = _all(odd), _all(back)
    assert sorted(key for key in old if old[key] != new[key]) == [name, name + SCALE]
    before, after = (np.frombuffer(found[name][2], np.uint8).reshape(slot.shape) for found in (old, new))
    differs = before != after
    assert differs[128:256, :128].any()
    differs[128:256, :128] = False
    assert not differs.any()
    known, scales = (np.frombuffer(found[name + SCALE][2], np.float32).reshape(-1, 2) for found in (old, new))
    assert scales[1, 0] == np.float32(4) / np.float32(448)
    assert np.argwhere(known != scales).tolist() == [[1, 0]]


def test_a_bf16_model_is_quantised_as_deepseek_is(wide: Path, published: Path, tmp_path: Path) -> None:
    """Without an FP8 original: the same tensors in FP8, each block by its largest value."""
    core, back = tmp_path / "core", tmp_path / "back"
    assert launch("hf-to-mcore", "--model", wide, "--out", core) == 0
    assert launch("mcore-to-hf", "--checkpoint", core, "--out", back, "--fp8", "blockwise") == 0
    assert _all(back) == _all(published)
    config = json.loads((back / "config.json").read_text())
    assert config["quantization_config"]["weight_block_size"] == [128, 128]


def test_a_wrong_word_is_noticed(
    published: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from launcher.convert import convert, fp8
    from launcher.convert.containers.transfer import write as write_bytes

    def broken(*args: Any) -> None:
        fp8.quantise(*args)
        files, _, target = args[:3]
        write_bytes(files, target.slot.path, target.slot.offset, [b"\x07"])

    core = _through(published, tmp_path)
    monkeypatch.setattr(convert, "quantise", broken)
    args = ["--fp8", "blockwise", "--model", published]
    assert launch("mcore-to-hf", "--checkpoint", core, "--out", tmp_path / "back", *args) == 1
    assert "words and scales are not those of its source" in capsys.readouterr().err
    assert not (tmp_path / "back").exists()


def test_only_hugging_face_targets(wide: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ["--format", "torch_dist", "--fp8", "blockwise"]
    assert launch("reshard", "--checkpoint", wide, "--out", tmp_path / "out", *args) == 1
    assert "cannot store FP8 weights; works: mcore-to-hf" in capsys.readouterr().err


def test_layers_that_the_original_has_in_bf16_stay_so(wide: Path, tmp_path: Path) -> None:
    """`--model` says which layers are in FP8: here one only."""
    name = "model.layers.1.self_attn.o_proj.weight"
    arrays = arrays_of(wide)
    arrays[name], arrays[name + SCALE] = quantised_block(decode(arrays[name], "BF16"))
    original = write(tmp_path / "original", arrays, (wide / "config.json").read_text())
    core, back = _through(original, tmp_path), tmp_path / "back"
    args = ["--fp8", "blockwise", "--model", original]
    assert launch("mcore-to-hf", "--checkpoint", core, "--out", back, *args) == 0
    assert _all(back) == _all(original)
    left = json.loads((back / "config.json").read_text())["quantization_config"]["modules_to_not_convert"]
    assert "model.layers.1.self_attn.kv_b_proj" in left
    assert name.removesuffix(".weight") not in left


def _with_mtp(published: Path, folder: Path) -> Path:
    """The published model with an MTP layer, half of it in FP8."""
    from launcher.convert.logical import logical_model
    from launcher.convert.model import model_in

    config = {**json.loads((published / "config.json").read_text()), "num_nextn_predict_layers": 1}
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    logical = logical_model(model_in(folder))
    arrays = arrays_of(published)
    for name, shape in logical.tensors.items():
        if name not in arrays:
            arrays[name] = np.full(shape, 0x3C00, np.uint16 if "correction_bias" not in name else np.float32)
            if "experts" in name:
                arrays[name], arrays[name + SCALE] = quantised_block(decode(arrays[name], "BF16"))
    for name, copy in logical.copies.items():
        if copy.written:
            arrays[name] = arrays[copy.of]
    return write(folder, arrays, config)


def test_an_original_with_mtp_layers_that_the_checkpoint_lacks(odd: Path, tmp_path: Path) -> None:
    core, back, original = _through(odd, tmp_path), tmp_path / "back", _with_mtp(odd, tmp_path / "mtp")
    args = ["--fp8", "blockwise", "--model", original]
    assert launch("mcore-to-hf", "--checkpoint", core, "--out", back, *args) == 0
    assert _all(back) == _all(odd)


def test_an_original_that_cannot_be_read_is_no_original(
    published: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arrays = arrays_of(published)
    del arrays["model.layers.1.self_attn.o_proj.weight"], arrays["model.layers.1.self_attn.o_proj.weight" + SCALE]
    part = write(tmp_path / "part", arrays, (published / "config.json").read_text())
    core = _through(published, tmp_path)
    args = ["--fp8", "blockwise", "--model", part]
    assert launch("mcore-to-hf", "--checkpoint", core, "--out", tmp_path / "back", *args) == 1
    reported = capsys.readouterr().err
    assert "--model has weights in FP8, but cannot be read; works: a folder without weights" in reported
    assert "model.layers.1.self_attn.o_proj.weight" in reported


@pytest.mark.parametrize(
    ("config", "reported"),
    [
        ({"quant_method": "awq", "bits": 4}, "quantization_config.quant_method is 'awq'"),
        ({"quant_method": "fp8", "weight_block_size": [64, 64]}, "weight_block_size is [64, 64]"),
        ({"quant_method": "fp8"}, "weight_block_size is None"),
    ],
    ids=["awq", "block size", "no blocks"],
)
def test_a_config_that_says_something_else(
    config: dict[str, Any], reported: str, wide: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = {**json.loads((wide / "config.json").read_text()), "quantization_config": config}
    donor = tmp_path / "donor"
    donor.mkdir()
    (donor / "config.json").write_text(json.dumps(tree))
    args = ["--format", "hf", "--fp8", "blockwise", "--model", donor, "--out", tmp_path / "out"]
    assert launch("reshard", "--checkpoint", wide, *args) == 1
    assert reported in capsys.readouterr().err


def test_layers_that_a_config_leaves_alone_stay_so(wide: Path, published: Path, tmp_path: Path) -> None:
    tree = json.loads((published / "config.json").read_text())
    tree["quantization_config"]["modules_to_not_convert"] = ["model.layers.0.mlp"]
    donor, out = tmp_path / "donor", tmp_path / "out"
    donor.mkdir()
    (donor / "config.json").write_text(json.dumps(tree))
    args = ["--format", "hf", "--fp8", "blockwise", "--model", donor, "--out", out]
    assert launch("reshard", "--checkpoint", wide, *args) == 0
    found = tensors(out)
    assert found["model.layers.0.mlp.up_proj.weight"][0] == "BF16"
    assert found["model.layers.1.self_attn.o_proj.weight"][0] == "F8_E4M3"
    assert json.loads((out / "config.json").read_text())["quantization_config"] == tree["quantization_config"]


def test_other_families_need_a_release_in_fp8(model: Zoo, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With one, and its config.json, they come back like DeepSeek-V3."""
    plain = model("qwen3_moe")
    args = ["--format", "hf", "--fp8", "blockwise", "--out", tmp_path / "out"]
    assert launch("reshard", "--checkpoint", plain, *args) == 1
    assert "are known for deepseek_v3 only, not for qwen3_moe; works: --model, the" in capsys.readouterr().err
    kinds = {"F32": np.float32}
    arrays: dict[str, Any] = {
        name: np.frombuffer(data, kinds[dtype]).reshape(shape) for name, (dtype, shape, data) in tensors(plain).items()
    }
    name = "model.layers.1.self_attn.o_proj.weight"
    arrays[name], arrays[name + SCALE] = quantised_block(arrays[name])
    reported = {"quant_method": "fp8", "weight_block_size": [128, 128], "modules_to_not_convert": ["lm_head"]}
    tree = {**json.loads((plain / "config.json").read_text()), "quantization_config": reported}
    release = write(tmp_path / "release", arrays, tree)
    full = tmp_path / "full"
    assert launch("reshard", "--checkpoint", release, "--format", "hf", "--dtype", "fp32", "--out", full) == 0
    assert launch("reshard", "--checkpoint", full, *args, "--model", release) == 0
    assert _all(tmp_path / "out") == _all(release)
