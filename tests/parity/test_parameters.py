"""Parameters after training: what is a difference, and what the reference's own second training explains."""

from functools import partial
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
save_file = pytest.importorskip("safetensors.torch").save_file
load_file = pytest.importorskip("safetensors.torch").load_file

from launcher.parity.parameters import compare_parameters  # noqa: E402
from launcher.parity.reordered import reverse_neurons  # noqa: E402

BIAS, GATE = "model.layers.0.self_attn.k_proj.bias", "model.layers.0.mlp.gate_proj.weight"


def weights(folder: Path, *, bias: float = 0.0, reverse: bool = False, moved: float = 1.0) -> Path:
    """Write two tensors that training moved by 1 everywhere, and the bias by a little more."""
    generator = torch.Generator().manual_seed(1)
    tensors = {name: torch.randn(8, 4, generator=generator) + moved for name in (BIAS, GATE)}
    tensors[BIAS] += bias
    if reverse:
        reverse_neurons(tensors)
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors")
    return folder


def test_a_difference_is_told_relative_to_the_movement(tmp_path: Path) -> None:
    start, one = weights(tmp_path / "start", moved=0.0), weights(tmp_path / "one")
    other = weights(tmp_path / "other", bias=5e-3)
    found = compare_parameters(start, lambda: one, lambda: other, allowed=1e-3)
    assert not found.agrees
    assert found.name == BIAS
    assert found.relative == pytest.approx(5e-3, rel=1e-3)


def test_ten_times_the_references_own_spread_is_no_difference(tmp_path: Path) -> None:
    start, one = weights(tmp_path / "start", moved=0.0), weights(tmp_path / "one")
    other, second = weights(tmp_path / "other", bias=5e-3), weights(tmp_path / "second", bias=-1e-3, reverse=True)
    found = compare_parameters(start, lambda: one, lambda: other, allowed=1e-3, again=lambda: second)
    assert found.agrees
    assert found.tolerance == pytest.approx(1e-2, rel=1e-2)


def test_the_spread_of_one_tensor_excuses_no_other(tmp_path: Path) -> None:
    start, one = weights(tmp_path / "start", moved=0.0), weights(tmp_path / "one")
    other, second = weights(tmp_path / "other"), weights(tmp_path / "second", bias=-1e-3, reverse=True)
    generator = torch.Generator().manual_seed(1)
    tensors = {name: torch.randn(8, 4, generator=generator) + 1.0 for name in (BIAS, GATE)}
    tensors[GATE] += 5e-3
    save_file(tensors, other / "model.safetensors")
    found = compare_parameters(start, lambda: one, lambda: other, allowed=1e-3, again=lambda: second)
    assert not found.agrees
    assert found.name == GATE


def test_without_tolerance_only_equal_parameters_agree(tmp_path: Path) -> None:
    start, one, other = weights(tmp_path / "start", moved=0.0), weights(tmp_path / "one"), weights(tmp_path / "other")
    assert compare_parameters(start, lambda: one, lambda: other, allowed=0.0).agrees
    differing = weights(tmp_path / "differing", bias=1e-6)
    assert not compare_parameters(start, lambda: one, lambda: differing, allowed=0.0).agrees


def test_neighbours_in_bf16_are_one_value(tmp_path: Path) -> None:
    folders = {}
    step = 2.0**-7
    for name, norm, weight in (
        ("start", (1.0, 1.0, 1.0), 0.01),
        ("one", (1.0, 1.0 + step, 1.0 + step), 0.02),
        ("near", (1.0 + step, 1.0 + step, 1.0 + step), 0.02),
        ("untrained norm", (1.0, 1.0, 1.0), 0.02),
        ("far", (1.0, 1.0 + step, 1.0 + step), 0.03),
    ):
        (tmp_path / name).mkdir()
        tensors = {"norm": torch.tensor(norm).bfloat16(), "weight": torch.tensor([weight]).bfloat16()}
        save_file(tensors, tmp_path / name / "model.safetensors")
        folders[name] = tmp_path / name
    start, one = folders["start"], folders["one"]
    assert compare_parameters(start, lambda: one, lambda: folders["near"], allowed=0.2).agrees
    for name in ("untrained norm", "far"):
        assert not compare_parameters(start, lambda: one, partial(folders.get, name), allowed=0.2).agrees


def test_a_side_that_saves_fp32_is_rounded_as_the_other_one(tmp_path: Path) -> None:
    step = 2.0**-7
    exact = torch.tensor([1.0 + 0.9 * step, 1.0 - 0.6 * step, 1.0 + 1.2 * step])
    for name, norm in (("start", torch.ones(3).bfloat16()), ("one", exact.bfloat16()), ("other", exact)):
        (tmp_path / name).mkdir()
        save_file({"norm": norm}, tmp_path / name / "model.safetensors")
    sides = [partial(Path, tmp_path / name) for name in ("one", "other")]
    for reference, side in (sides, reversed(sides)):
        assert compare_parameters(tmp_path / "start", reference, side, allowed=0.0).agrees


def test_a_tensor_that_one_side_does_not_save_is_told(tmp_path: Path) -> None:
    start, one, other = weights(tmp_path / "start", moved=0.0), weights(tmp_path / "one"), tmp_path / "other"
    other.mkdir()
    save_file({GATE: load_file(one / "model.safetensors")[GATE]}, other / "model.safetensors")
    found = compare_parameters(start, lambda: one, lambda: other, allowed=1e-3)
    assert found.agrees
    assert found.compared == 1
    assert f"not compared, as one side did not save it: {BIAS}" in found.line()
    assert found.as_tree()["not_compared"] == [BIAS]
