"""A checkpoint has the tensors of its architecture, no more and no fewer, whatever its format; else they are named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.convert.helpers import arrays_of, launch, write

Zoo = Callable[[str], Path]
Tensors = dict[str, Any]
Change = Callable[[Tensors], object]


def _in_hf(folder: Path, change: Change) -> None:
    arrays = dict(arrays_of(folder))
    change(arrays)
    config = (folder / "config.json").read_text()
    (folder / "model.safetensors").unlink()
    write(folder, arrays, config)


def _in_torch(folder: Path, change: Change) -> None:
    import torch

    file = sorted(folder.rglob("*.pt"))[-1]
    tree = torch.load(file, weights_only=False)
    change(tree["model"])
    torch.save(tree, file)


def _in_torch_dist(folder: Path, change: Change) -> None:
    import torch
    import torch.distributed.checkpoint as dcp

    place = next(folder.rglob("common.pt"))
    kept, reader = place.read_bytes(), dcp.FileSystemReader(place.parent)
    known = reader.read_metadata().state_dict_metadata
    tree = {key: torch.empty(entry.size) for key, entry in known.items() if hasattr(entry, "size")}
    dcp.load(tree, storage_reader=reader, no_dist=True)
    change(tree)
    for old in (*place.parent.glob("*.distcp"), place.parent / ".metadata"):
        old.unlink()
    dcp.save(tree, storage_writer=dcp.FileSystemWriter(place.parent), no_dist=True)
    place.write_bytes(kept)


def _in_safetensors(folder: Path, change: Change) -> None:
    from safetensors.numpy import load_file, save_file

    file = sorted(folder.rglob("*.safetensors"))[0]
    tree = dict(load_file(file))
    change(tree)
    save_file(tree, file)


# How a checkpoint is written, how its tensors are changed, and the ends of names of one in each layer and of the norm.
FORMATS: dict[str, tuple[tuple[str, ...], Callable[[Path, Change], None], str, str]] = {
    "hf": (("--format", "hf"), _in_hf, "self_attn.o_proj.weight", "model.norm.weight"),
    "torch_dist": ((), _in_torch_dist, "self_attention.linear_proj.weight", "final_layernorm.weight"),
    "legacy": (("--format", "legacy"), _in_torch, "self_attention.linear_proj.weight", "final_layernorm.weight"),
    "legacy, a rank of two": (
        ("--format", "legacy", "parallel.tp=2"),
        _in_torch,
        "self_attention.linear_proj.weight",
        "final_layernorm.weight",
    ),
    "mindspeed": (("--backend", "mindspeed"), _in_torch, "self_attention.linear_proj.weight", "final_layernorm.weight"),
    "mindformers": (("--backend", "mindformers"), _in_safetensors, "linear_proj.weight", "final_layernorm.weight"),
}
FAMILIES = ["qwen3", "qwen3_moe"]


def _gone(end: str) -> Change:
    return lambda tree: tree.pop(next(name for name in tree if name.endswith(end)))


def _more(end: str) -> Change:
    def change(tree: Tensors) -> None:
        name = next(name for name in tree if name.endswith(end))
        tree[name.replace(".weight", ".surplus")] = tree[name]

    return change


def _renamed(end: str) -> Change:
    def change(tree: Tensors) -> None:
        name = next(name for name in tree if name.endswith(end))
        tree[name.replace(".weight", ".other")] = tree.pop(name)

    return change


CHANGES: dict[str, tuple[Callable[[str], Change], tuple[str, ...]]] = {
    "one missing": (_gone, ("",)),
    "one more": (_more, ("surplus",)),
    "one under another name": (_renamed, ("other",)),
}


@pytest.mark.sample(keep=4)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("args,put,inner,outer", FORMATS.values(), ids=FORMATS)
def test_missing_and_surplus_tensors_are_named(
    family: str,
    args: tuple[str, ...],
    put: Callable[[Path, Change], None],
    inner: str,
    outer: str,
    model: Zoo,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "out"
    for number, (name, (make, reported)) in enumerate(CHANGES.items()):
        end = (inner, outer)[number % 2]
        made = tmp_path / f"made{number}"
        verb = ("reshard", "--checkpoint") if "hf" in args else ("hf-to-mcore", "--model")
        assert launch(verb[0], verb[1], model(family), "--out", made, *args) == 0
        put(made, make(end))
        capsys.readouterr()
        for back in (("mcore-to-hf",), ("reshard", "--format", "legacy"), ("mcore-to-hf", "--dtype", "bf16")):
            assert launch(*back, "--checkpoint", made, "--out", out) == 1, name
            captured = capsys.readouterr().err
            assert all(arg in captured for arg in reported), captured
            assert end.removesuffix(".weight") in captured, captured
            assert not out.exists()
        assert launch("verify", made, model(family)) == 1


def test_buffers_that_are_computed_are_dropped_by_name(
    model: Zoo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """transformers up to 4.31 stored the frequencies of rotary positions."""
    arrays = dict(arrays_of(model("llama")))
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    arrays[name] = np.ones(8, np.float32)
    folder, out = write(tmp_path / "hf", arrays, (model("llama") / "config.json").read_text()), tmp_path / "out"
    assert launch("hf-to-mcore", "--model", folder, "--out", out) == 0
    assert "dropped  1 tensors (computed from config.json" in capsys.readouterr().out
    assert json.loads((out / "conversion.json").read_text())["dropped"].keys() == {name}
    del arrays[name]
    arrays["model.layers.0.self_attn.rotary_emb.other"] = np.ones(8, np.float32)
    other = write(tmp_path / "other", arrays, (model("llama") / "config.json").read_text())
    assert launch("hf-to-mcore", "--model", other, "--out", tmp_path / "no") == 1
    assert "rotary_emb.other" in capsys.readouterr().err
