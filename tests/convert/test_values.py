"""What casts do to values is refused where it destroys them, counted where it rounds them, and always reported."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.convert.casts import cast, decode, encode, not_finite
from launcher.convert.losses import LARGEST, Losses
from tests.convert.fp8_models import quantised_arrays, write_fp8
from tests.convert.helpers import arrays_of, convert_until_the_disk_is_full, launch, tensors, write
from tests.sampling import examples

Zoo = Callable[[str], Path]
UP = "model.layers.1.mlp.up_proj.weight"
NORM = "model.norm.weight"
ARGS = {"F16": "<u2", "BF16": "<u2", "F32": "<u4", "F64": "<u8"}


def _as(array: Any, dtype: str) -> Any:
    """Values as a numpy array that `write` stores in that number format."""
    if dtype == "BF16":
        return encode(np.asarray(array, np.float32), "BF16").reshape(np.shape(array))
    return np.asarray(array).astype({"F16": np.float16, "F32": np.float32, "F64": np.float64}[dtype])


def _model(zoo: Zoo, folder: Path, dtype: str = "F32", name: str = "llama", **changed: Any) -> Path:
    """A model in one number format with single values replaced; `changed`: tensor (dots as __) to place and value."""
    arrays = arrays_of(zoo(name))
    with np.errstate(over="ignore"):
        for tensor, values in changed.items():
            wide = arrays[tensor.replace("__", ".")].astype(np.float64)
            for place, value in values.items():
                wide.reshape(-1)[place] = value
            arrays[tensor.replace("__", ".")] = wide
        return write(
            folder, {key: _as(value, dtype) for key, value in arrays.items()}, (zoo(name) / "config.json").read_text()
        )


def _report(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "conversion.json").read_text())["values"]
    return found


# Number format of the source, the value, --dtype, and whether it becomes infinite.
EDGES: dict[str, tuple[str, float, str, bool]] = {
    "fp32 to fp16, far beyond": ("F32", 1e30, "fp16", True),
    "fp32 to fp16, the first that rounds up": ("F32", 65520.0, "fp16", True),
    "fp32 to fp16, the last that rounds down": ("F32", 65519.0, "fp16", False),
    "fp32 to bf16, the largest": ("F32", 3.4028234663852886e38, "bf16", True),
    "fp32 to bf16, the first that rounds up": ("F32", 3.3961776e38, "bf16", True),
    "fp32 to bf16, the largest of bf16": ("F32", 3.3895313892515355e38, "bf16", False),
    "bf16 to fp16, negative": ("BF16", -1e20, "fp16", True),
    "fp64 to fp32": ("F64", 1e300, "fp32", True),
    "fp64 to bf16, negative": ("F64", -1e39, "bf16", True),
    "fp64 to fp16": ("F64", 70000.0, "fp16", True),
    "fp16 to bf16": ("F16", 65504.0, "bf16", False),
}
TARGETS: dict[str, tuple[str, ...]] = {
    "torch_dist": (),
    "legacy": ("--format", "legacy", "parallel.tp=2"),
    "mindspeed": ("--backend", "mindspeed", "parallel.pp=2"),
}


@pytest.mark.parametrize("source,value,dtype,lost", EDGES.values(), ids=EDGES)
def test_finite_values_that_would_become_infinite_are_refused(
    source: str, value: float, dtype: str, lost: bool, model: Zoo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, out = _model(model, tmp_path / "hf", source, **{UP.replace(".", "__"): {7: value}}), tmp_path / "out"
    code = launch("hf-to-mcore", "--model", folder, "--out", out, "--dtype", dtype)
    captured = capsys.readouterr().err
    if not lost:
        assert code == 0
        assert _report(out)["cast"]["overflowed"] == 0
        return
    assert code == 1
    assert "1 finite value in 1 tensor would become infinite" in captured
    assert (
        f"{UP} and 1 more: 1 of " in captured
        or f"{UP}: 1 of " in captured
        or "gate_proj.weight and 1 more: 1 of " in captured
    )
    assert f"{abs(float(decode(_as([value], source).view(ARGS[source]), source)[0])):.6g}" in captured
    assert "--allow-overflow" in captured
    assert not list(tmp_path.glob("out*"))


@pytest.mark.parametrize("args", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("verify", [(), ("--no-verify",)], ids=["verified", "not verified"])
def test_overflow_in_every_direction(
    args: tuple[str, ...], verify: tuple[str, ...], model: Zoo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Refused with the count and the largest value; infinite only where that is asked for, and then counted."""
    places = {3: 1e9, 500: -2e10, 777: 65520.0}
    folder = _model(model, tmp_path / "hf", **{UP.replace(".", "__"): places})
    core, back, shards = tmp_path / "core", tmp_path / "back", tmp_path / "shards"
    fp16 = ("--dtype", "fp16", *verify)
    assert launch("hf-to-mcore", "--model", folder, "--out", core, *args, *fp16) == 1
    assert "3 finite values in 1 tensor" in (captured := capsys.readouterr().err)
    assert "largest 2e+10" in captured
    assert "works: --dtype bf16 · --dtype fp32 · --allow-overflow" in captured
    assert launch("hf-to-mcore", "--model", folder, "--out", core, *args) == 0
    for verb in (("mcore-to-hf",), ("reshard", *args)):
        assert launch(*verb, "--checkpoint", core, "--out", back, *fp16) == 1
        assert "3 finite values in 1 tensor" in capsys.readouterr().err
        assert not back.exists()
    assert launch("mcore-to-hf", "--checkpoint", core, "--out", back, *fp16, "--allow-overflow") == 0
    assert "3 finite values became infinite" in capsys.readouterr().out
    assert _report(back)["cast"]["overflowed"] == 3
    assert not _report(back)["infinite"]
    found = np.frombuffer(tensors(back)[UP][2], np.float16)
    assert sorted(np.flatnonzero(np.isinf(found))) == sorted(places)
    assert launch("reshard", "--checkpoint", back, "--out", shards, "--format", "hf", *verify) == 0
    if not verify:
        assert _report(shards)["infinite"] == {UP: 3}


@pytest.mark.parametrize("args", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("dtype", ["F32", "BF16", "F16"])
def test_what_was_no_number_before_is_counted_and_reported(
    dtype: str, args: tuple[str, ...], model: Zoo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """NORM lies on every tensor-parallel rank, and is counted once."""
    odd = {UP: {1: np.nan, 2: -np.inf, 90: np.nan}, NORM: {0: np.inf, 63: -np.nan}}
    folder = _model(model, tmp_path / "hf", dtype, **{name.replace(".", "__"): places for name, places in odd.items()})
    core, cast = tmp_path / "core", tmp_path / "cast"
    assert launch("hf-to-mcore", "--model", folder, "--out", core, *args) == 0
    assert "NaN      3 values in 2 tensors, as in the source" in (captured := capsys.readouterr().out)
    assert "infinite 2 values in 2 tensors, as in the source" in captured
    found = _report(core)
    assert (sum(found["nan"].values()), sum(found["infinite"].values())) == (3, 2)
    assert NORM in found["nan"]
    args = ("--dtype", "fp32" if dtype == "BF16" else "bf16", "--overwrite")
    for more in ((), ("--no-verify",)):
        assert launch("mcore-to-hf", "--checkpoint", core, "--out", cast, *args, *more) == 0
        found = _report(cast)
        assert (found["nan"], found["infinite"]) == ({UP: 2, NORM: 1}, {UP: 1, NORM: 1})
        assert found["looked_through_copies"] is (not more)


def test_rounded_values_are_counted_and_reported(
    model: Zoo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert launch("hf-to-mcore", "--model", model("llama"), "--out", out, "--dtype", "bf16", "--format", "legacy") == 0
    captured = capsys.readouterr().out
    changes = {
        name: np.abs(array - decode(encode(array, "BF16"), "BF16")) for name, array in arrays_of(model("llama")).items()
    }
    found = _report(out)["cast"]
    assert found["to"] == "BF16"
    assert found["values"] == sum(change.size for change in changes.values())
    assert found["rounded"] == sum(int(np.count_nonzero(change)) for change in changes.values())
    assert found["largest_difference"] == max(float(change.max()) for change in changes.values())
    assert f"rounded  {found['rounded']:,} of {found['values']:,} values to BF16, largest difference" in captured


def test_fp8_export_says_how_far_it_is_from_its_source(model: Zoo, tmp_path: Path) -> None:
    core, back = tmp_path / "core", tmp_path / "back"
    assert launch("hf-to-mcore", "--model", model("deepseek_v3"), "--out", core) == 0
    assert launch("mcore-to-hf", "--checkpoint", core, "--out", back, "--fp8", "blockwise") == 0
    found = _report(back)["cast"]
    assert found["to"] == "F8_E4M3"
    assert 0 < found["rounded"] <= found["values"]
    assert 0 < found["largest_difference"] < 0.1


def test_a_widening_cast_rounds_nothing(model: Zoo, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = _model(model, tmp_path / "hf", "BF16")
    assert launch("hf-to-mcore", "--model", folder, "--out", tmp_path / "out", "--dtype", "fp32") == 0
    assert "values to F32, none was rounded" in capsys.readouterr().out


def test_counts_survive_an_interruption(
    model: Zoo, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = {UP.replace(".", "__"): {1: np.nan}, NORM.replace(".", "__"): {0: np.inf}}
    folder = _model(model, tmp_path / "hf", **odd)
    args = ("hf-to-mcore", "--model", folder, "--workers", "1", "--dtype", "bf16", "--no-verify")
    convert_until_the_disk_is_full(monkeypatch, args, tmp_path / "whole", tmp_path / "core")
    assert launch(*args, "--out", tmp_path / "core") == 0
    assert "continuing an interrupted conversion" in capsys.readouterr().err
    assert _report(tmp_path / "core") == _report(tmp_path / "whole")


# --- verify ---


def test_verify_says_when_values_are_equal_only_after_rounding(
    model: Zoo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In both orders: an exit code of its own, and a field of its own."""
    core = tmp_path / "core"
    assert launch("hf-to-mcore", "--model", model("llama"), "--out", core, "--dtype", "fp16") == 0
    capsys.readouterr()
    for pair in ((model("llama"), core), (core, model("llama"))):
        assert launch("verify", *pair) == 3
        captured = capsys.readouterr().out
        assert "are equal after rounding to F16, largest difference" in captured
        assert launch("verify", *pair, "--json") == 3
        answer = json.loads(capsys.readouterr().out)
        assert (answer["ok"], answer["outcome"], answer["problems"]) == (False, "equal_after_rounding", [])
        assert answer["rounding"]["to"] == "F16"
        assert answer["rounding"]["largest_difference"] == _report(core)["cast"]["largest_difference"]
        assert answer["rounding"]["rounded"] == _report(core)["cast"]["rounded"]


def test_verify_of_equal_values_in_other_formats(
    model: Zoo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    narrow = _model(model, tmp_path / "bf16", "BF16", **{UP.replace(".", "__"): {5: np.nan, 6: np.inf}})
    wide = tmp_path / "wide"
    assert launch("hf-to-mcore", "--model", narrow, "--out", wide, "--dtype", "fp32") == 0
    capsys.readouterr()
    for pair in ((narrow, wide), (wide, narrow)):
        assert launch("verify", *pair) == 0
        assert "the same weights, every value, in other number formats" in capsys.readouterr().out
    assert launch("verify", narrow, narrow, "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["ok"], answer["outcome"], answer["rounding"]) == (True, "equal", None)


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_verify_finds_one_value_that_is_no_rounding(
    dtype: str, model: Zoo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    core, other = tmp_path / "core", tmp_path / "other"
    changed = _model(model, tmp_path / "hf", **{UP.replace(".", "__"): {17: 0.731}})
    for folder, out in ((model("llama"), core), (changed, other)):
        assert launch("hf-to-mcore", "--model", folder, "--out", out, "--dtype", dtype) == 0
    for pair in ((changed, core), (core, changed)):
        assert launch("verify", *pair) == 1
        assert "differ in 1 of" in capsys.readouterr().out
    assert launch("verify", core, other) == 1


def test_verify_calls_an_overflow_a_difference(model: Zoo, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, core = _model(model, tmp_path / "hf", **{UP.replace(".", "__"): {17: 1e6}}), tmp_path / "core"
    args = ("--dtype", "fp16", "--allow-overflow")
    assert launch("hf-to-mcore", "--model", folder, "--out", core, *args) == 0
    for pair in ((folder, core), (core, folder)):
        assert launch("verify", *pair) == 1
        assert "1 finite values, the largest 1e+06, became infinite" in capsys.readouterr().out


def test_verify_of_bf16_and_fp16_finds_which_was_cast(model: Zoo, tmp_path: Path) -> None:
    """Values far below one lose bits in fp16, the others do not."""
    folder = _model(model, tmp_path / "bf16", "BF16", **{UP.replace(".", "__"): {17: 1e-7, 18: 1e-12}})
    half = tmp_path / "half"
    assert launch("hf-to-mcore", "--model", folder, "--out", half, "--dtype", "fp16") == 0
    assert launch("verify", folder, half) == 3
    assert launch("verify", half, folder) == 3


def test_verify_of_fp8(model: Zoo, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Against its bf16: equal after rounding, in both orders; against other scales: different."""
    arrays = quantised_arrays(model("deepseek_v3"))
    folder, plain = write_fp8(tmp_path / "fp8", model("deepseek_v3"), arrays), tmp_path / "plain"
    assert launch("reshard", "--checkpoint", folder, "--out", plain, "--format", "hf", "--dtype", "bf16") == 0
    assert launch("verify", folder, plain) == 3
    assert launch("verify", plain, folder) == 3
    assert launch("verify", folder, folder) == 0
    name = "model.layers.1.self_attn.o_proj.weight_scale_inv"
    other = write_fp8(tmp_path / "other", model("deepseek_v3"), {**arrays, name: arrays[name] * np.float32(1.5)})
    capsys.readouterr()
    assert launch("verify", folder, other) == 1
    assert name in capsys.readouterr().out


# --- against a reference ---


@given(
    values=st.lists(st.floats(width=64), min_size=1, max_size=40),
    source=st.sampled_from(["F64", "F32", "BF16", "F16"]),
    target=st.sampled_from(["F32", "BF16", "F16"]),
)
@examples(60)
def test_counts_are_those_of_one_value_after_the_other(values: list[float], source: str, target: str) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        args = _as(np.array(values), source).view(ARGS[source])
    before = decode(args, source)
    after = cast(args, source, target)
    losses = Losses()
    losses.count(before, after, target)
    back = decode(after, target).astype(np.float64)
    pairs = list(zip(before.astype(np.float64), back, strict=True))
    finite = [(a, b) for a, b in pairs if np.isfinite(a)]
    kept = [abs(a - b) for a, b in finite if np.isfinite(b)]
    assert losses.values == len(pairs)
    assert losses.nan == sum(np.isnan(a) for a, _ in pairs)
    assert losses.infinite == sum(np.isinf(a) for a, _ in pairs)
    assert losses.overflowed == sum(not np.isfinite(b) for _, b in finite)
    assert losses.rounded == sum(change > 0 for change in kept)
    assert losses.difference == pytest.approx(max(kept, default=0), rel=1e-6)
    if losses.overflowed:
        assert losses.largest > LARGEST[target]


@given(data=st.binary(min_size=8, max_size=64), dtype=st.sampled_from([*ARGS, "F8_E4M3", "I32"]))
@examples(80)
def test_nan_and_infinite_words_are_found(data: bytes, dtype: str) -> None:
    whole = data[: len(data) - len(data) % 8]
    if dtype == "I32":
        assert not_finite(whole, dtype) == (0, 0)
        return
    with np.errstate(invalid="ignore"):
        values = decode(np.frombuffer(whole, ARGS.get(dtype, "u1")), dtype)
    assert not_finite(whole, dtype) == (int(np.isnan(values).sum()), int(np.isinf(values).sum()))
