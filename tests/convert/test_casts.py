"""Casts are what torch computes, bit by bit; FP8 blocks are dequantised as DeepSeek's own script does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy
import pytest

from launcher.convert.casts import cast, decode, dequantised
from tests.convert.helpers import arrays_of, launch, tensors, write

torch = pytest.importorskip("torch")
TORCH = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
ARGS = {"F32": torch.int32, "BF16": torch.int16, "F16": torch.int16}


def _samples(dtype: str) -> torch.Tensor:
    special = [0.0, -0.0, 1.0, -1.5, 65504.0, 65520.0, 1e-8, 6e-8, 3.4e38, float("inf"), -float("inf")]
    halves = [1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-11, 1 + 3 * 2**-11]  # ties: to even
    noise = torch.randn(4096, generator=torch.Generator().manual_seed(0)) * 10
    return torch.cat([torch.tensor(special + halves), noise]).to(TORCH[dtype])


@pytest.mark.parametrize("source", TORCH)
@pytest.mark.parametrize("target", TORCH)
def test_casts_equal_torch(source: str, target: str) -> None:
    values = _samples(source)
    args = values.view(ARGS[source]).numpy().view(f"<u{values.element_size()}")
    expected = values.to(TORCH[target])
    found = cast(args, source, target)
    assert (found == expected.view(ARGS[target]).numpy().view(found.dtype)).all()


def test_nan_stays_nan() -> None:
    args = numpy.array([0x7FC00000, 0xFFC00001], dtype="<u4")
    for target in ("BF16", "F16"):
        assert numpy.isnan(decode(cast(args, "F32", target), target)).all()


def test_every_fp8_value_equals_torch() -> None:
    codes = numpy.arange(256, dtype="u1")
    expected = torch.from_numpy(codes.view("i1")).view(torch.float8_e4m3fn).float().numpy()
    numpy.testing.assert_array_equal(decode(codes, "F8_E4M3"), expected)


def test_blocks_have_their_own_scale() -> None:
    codes = numpy.full((130, 129), 0x38, dtype="u1")  # 1.0
    scales = numpy.array([[1, 2], [3, 4]], dtype="float32")
    whole = dequantised(codes, "F8_E4M3", scales, 0, 0)
    assert (whole[0, 0], whole[127, 128], whole[128, 0], whole[129, 128]) == (1, 2, 3, 4)
    assert (dequantised(codes[100:], "F8_E4M3", scales, 100, 0) == whole[100:]).all()


def test_a_model_is_cast_when_asked(model: Callable[[str], Path], tmp_path: Path) -> None:
    core, back = tmp_path / "core", tmp_path / "back"
    assert launch("hf-to-mcore", "--model", model("deepseek_v3"), "--out", core, "--dtype", "bf16") == 0
    assert launch("mcore-to-hf", "--checkpoint", core, "--out", back) == 0
    for name, array in arrays_of(model("deepseek_v3")).items():
        dtype, _, data = tensors(back)[name]
        if name.endswith("e_score_correction_bias"):
            assert (dtype, data) == ("F32", array.tobytes())
        else:
            expected = torch.from_numpy(array.copy()).bfloat16().view(torch.int16).numpy().tobytes()
            assert (dtype, data) == ("BF16", expected)


def _quantised(arrays: dict[str, numpy.ndarray]) -> dict[str, numpy.ndarray]:
    """Projections in FP8 with one scale per 128 x 128 block, as DeepSeek-V3 is published."""
    found = {}
    rng = numpy.random.default_rng(2)
    for name, array in arrays.items():
        if "proj" in name and array.ndim == 2:
            found[name] = (rng.integers(0, 0x70, array.shape) | (rng.integers(0, 2, array.shape) << 7)).astype("u1")
            shape = tuple(-(-size // 128) for size in array.shape)
            found[f"{name}_scale_inv"] = rng.uniform(0.5, 2, shape).astype("float32")
        elif "bias" in name:
            found[name] = array
        else:
            found[name] = (array.view("<u4") >> 16).astype("<u2")
    return found


def test_blockwise_fp8_is_dequantised_when_asked(
    model: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arrays = _quantised(arrays_of(model("deepseek_v3")))
    folder = write(tmp_path / "hf", arrays, (model("deepseek_v3") / "config.json").read_text())
    core, back = tmp_path / "core", tmp_path / "back"
    assert launch("hf-to-mcore", "--model", folder, "--out", core) == 1
    assert "--dtype bf16" in capsys.readouterr().err
    assert launch("hf-to-mcore", "--model", folder, "--out", core, "--dtype", "bf16") == 0
    assert launch("mcore-to-hf", "--checkpoint", core, "--out", back) == 0
    found = tensors(back)
    assert not [name for name in found if name.endswith("_scale_inv")]
    name = "model.layers.1.mlp.experts.0.up_proj.weight"
    values = torch.from_numpy(arrays[name].view("i1")).view(torch.float8_e4m3fn).float()
    expected = (values * float(arrays[f"{name}_scale_inv"][0, 0])).bfloat16()
    assert found[name][2] == expected.view(torch.int16).numpy().tobytes()
