"""MindFormers' checkpoints: equal to what its own converters write, there and back without a byte lost."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.backends.mindformers import weights
from tests.convert.helpers import launch, tensors

pytest.importorskip("numpy")
UPSTREAM = json.loads((Path(__file__).parent / "upstream_weights.json").read_text(encoding="utf-8"))
OLD = ("--set", "version=1.6", "--set", "mla_qkv_concat=true")
RANKS = ("--set", "per_rank=true", "backend=mindformers")
ARRANGEMENTS: dict[str, tuple[str, ...]] = {
    "default": (),
    "concatenated down projections": ("--set", "mla_qkv_concat=true"),
    "contiguous": (
        "--set",
        "use_interleaved_weight_layout_mlp=false",
        "--set",
        "use_contiguous_weight_layout_attention=true",
    ),
    "native arguments": (
        "backend=mindformers",
        "+backend.args={model.model_config.use_interleaved_weight_layout_mlp:false}",
    ),
    "tp2 pp2": (*RANKS, "parallel.tp=2", "parallel.pp=2"),
    "tp2 pp4 vpp": (*RANKS, "parallel.tp=2", "parallel.pp=2", "parallel.vpp=2"),
    "uneven": (*RANKS, "parallel.pp=2", "parallel.first_stage_layers=1"),
}


MCORE = ("qwen3", "qwen3_tied", "qwen3_moe", "deepseek_v3", "deepseek_v3_two_shared", "deepseek_v3_full_query")


@pytest.fixture(params=MCORE)
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return weights.write(request.param, tmp_path / "hf")


def _to(model: Path, out: Path, *args: str) -> Path:
    assert launch("hf-to-mcore", "--model", model, "--out", out, "--backend", "mindformers", *args) == 0
    return out


def _back(checkpoint: Path, out: Path, *args: str) -> int:
    return launch("mcore-to-hf", "--checkpoint", checkpoint, "--out", out, "backend=mindformers", *args)


@pytest.mark.sample(keep=8)
@pytest.mark.parametrize("args", ARRANGEMENTS.values(), ids=list(ARRANGEMENTS))
def test_there_and_back_is_the_same_model(model: Path, args: tuple[str, ...], tmp_path: Path) -> None:
    checkpoint = _to(model, tmp_path / "mf", *args)
    assert _back(checkpoint, tmp_path / "back") == 0
    assert tensors(tmp_path / "back") == tensors(model)


@pytest.mark.parametrize(
    ("upstream", "name", "args"),
    [
        ("qwen3 2.1.0", "qwen3", ()),
        ("qwen3_moe 2.1.0", "qwen3_moe", ()),
        ("deepseek_v3 master", "deepseek_v3", ()),
        ("deepseek_v3 1.6.0", "deepseek_v3", OLD),
    ],
)
def test_same_names_shapes_and_bytes_as_upstream_writes(
    upstream: str, name: str, args: tuple[str, ...], tmp_path: Path
) -> None:
    checkpoint = _to(weights.write(name, tmp_path / "hf"), tmp_path / "mf", *args)
    assert weights.digests(sorted(checkpoint.rglob("*.safetensors"))) == UPSTREAM[upstream]


def test_experts_and_tensors_of_ranks_are_spread(tmp_path: Path) -> None:
    model = weights.write("qwen3_moe", tmp_path / "hf")
    args = (*RANKS, "parallel.tp=2", "parallel.pp=2", "parallel.ep=4", "parallel.sequence_parallel=true")
    checkpoint = _to(model, tmp_path / "mf", *args)
    folder = checkpoint / "iteration_00000001"
    assert sorted(file.name for file in folder.glob("*.safetensors")) == [
        f"model-{rank:07d}-0000008.safetensors" for rank in range(8)
    ]
    messages = json.loads((folder / "metadata.json").read_text())["state_dict_metadata"]
    experts = messages["decoder.layers.0.mlp.experts.weight1"]
    # global_offset is the number of a part.
    assert [part["global_offset"] for part in experts["chunk"]] == [[0], [1], [2], [3]]
    assert experts["chunk"][0]["local_shape"] == [64, 64]
    assert _back(checkpoint, tmp_path / "back") == 0
    assert tensors(tmp_path / "back") == tensors(model)


def test_what_a_training_adds_is_named_and_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import numpy as np
    from safetensors.numpy import load_file, save_file

    checkpoint = _to(weights.write("qwen3", tmp_path / "hf"), tmp_path / "mf")
    file = next(checkpoint.rglob("*.safetensors"))
    held = load_file(file)
    held["adam_m.decoder.final_layernorm.weight"] = np.zeros(64, np.float32)
    held["embedding.embedding_dropout.seed"] = np.zeros((), np.int64)
    held["global_step"] = np.zeros(1, np.int32)
    # 1.8.0 saves these, too (wrapper/wrapper.py:303-318).
    for name in ("lm_loss", "aux_loss", "mtp_loss", "current_default_lr", "global_batch_size"):
        held[name] = np.zeros(1, np.float32)
    save_file(held, file)
    save_file({"adam_v.x": np.zeros(1, np.float32)}, file.with_name("opt-0000000-0000001.safetensors"))
    assert _back(checkpoint, tmp_path / "back") == 0
    shown = capsys.readouterr().out
    assert "adam_m.decoder.final_layernorm.weight" in shown
    assert "opt-0000000-0000001.safetensors" in shown
    assert "the files do not define the order of rows" in shown
    assert tensors(tmp_path / "back") == tensors(tmp_path / "hf")


def _rename(folder: Path, change: str) -> None:
    from safetensors.numpy import load_file, save_file

    file = next(folder.rglob("*.safetensors"))
    held: dict[str, Any] = load_file(file)
    if change == "missing":
        del held["decoder.layers.1.mlp.linear_fc2.weight"]
    elif change == "foreign":
        held["decoder.layers.9.mlp.linear_fc2.weight"] = held["decoder.layers.1.mlp.linear_fc2.weight"]
    else:
        held["decoder.layers.1.mlp.linear_fc2.weight"] = held["decoder.layers.1.mlp.linear_fc2.weight"].T.copy()
    save_file(held, file)


@pytest.mark.parametrize(
    ("change", "reported"),
    [
        ("missing", "decoder.layers.1.mlp.linear_fc2.weight [64, 96] is missing"),
        ("foreign", "decoder.layers.9.mlp.linear_fc2.weight [64, 96]: a qwen3 model of this config.json has no such"),
        ("misshaped", "decoder.layers.1.mlp.linear_fc2.weight [96, 64]: config.json says [64, 96]"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused(
    change: str, reported: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = _to(weights.write("qwen3", tmp_path / "hf"), tmp_path / "mf")
    _rename(checkpoint, change)
    assert _back(checkpoint, tmp_path / "back") == 1
    assert reported in capsys.readouterr().err
    assert not (tmp_path / "back").exists()


def test_a_missing_rank_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = (*RANKS, "parallel.tp=2")
    checkpoint = _to(weights.write("qwen3", tmp_path / "hf"), tmp_path / "mf", *args)
    (checkpoint / "iteration_00000001" / "model-0000001-0000002.safetensors").unlink()
    assert _back(checkpoint, tmp_path / "back") == 1
    assert "model-0000001-0000002.safetensors" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "reported"),
    [
        (("--set", "interleaved=true"), "has no option interleaved; works: --set version=…, --set per_rank=…"),
        (("--set", "mla_qkv_concat=maybe"), "works: mla_qkv_concat=true"),
    ],
)
def test_refusals(args: tuple[str, ...], reported: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = weights.write("qwen3", tmp_path / "hf")
    assert launch("hf-to-mcore", "--model", model, "--out", tmp_path / "o", "--backend", "mindformers", *args) == 2
    assert reported in capsys.readouterr().err


@pytest.mark.parametrize("args", [(), ("parallel.tp=2", "parallel.ep=2", "parallel.sequence_parallel=true")])
def test_ranks_of_1_6_and_their_strategies_come_back(args: tuple[str, ...], tmp_path: Path) -> None:
    model = weights.write("deepseek_v3", tmp_path / "hf")
    checkpoint = _to(model, tmp_path / "mf", *OLD, *RANKS, "parallel.pp=2", *args)
    # Where a training of 1.6 writes them.
    assert (checkpoint / "checkpoint" / "rank_1").is_dir()
    assert (checkpoint / "strategy" / "ckpt_strategy_rank_1.ckpt").is_file()
    assert _back(checkpoint, tmp_path / "back") == 0
    assert tensors(tmp_path / "back") == tensors(model)


def test_the_format_is_found_without_naming_the_backend(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = weights.write("qwen3_moe", tmp_path / "hf")
    checkpoint = _to(model, tmp_path / "mf")
    assert launch("mcore-to-hf", "--checkpoint", checkpoint, "--out", tmp_path / "back") == 0
    assert launch("reshard", "--checkpoint", checkpoint, "--out", tmp_path / "core", "--format", "torch_dist") == 0
    assert launch("verify", model, checkpoint) == 0
    assert launch("verify", checkpoint, tmp_path / "core") == 0
    assert "hold the same weights, every byte" in capsys.readouterr().out
    assert tensors(tmp_path / "back") == tensors(model)


def test_torch_is_not_needed(tmp_path: Path) -> None:
    model = weights.write("qwen3", tmp_path / "hf")
    args = ["convert", "hf-to-mcore", "--model", str(model), "--out", str(tmp_path / "mf"), "--backend", "mindformers"]
    code = (
        "import sys\n"
        "sys.modules['torch'] = None\n"
        "from launcher.cli import main\n"
        f"assert main({args!r}) == 0\n"
        f"assert main(['convert', 'mcore-to-hf', '--checkpoint', {str(tmp_path / 'mf')!r}, '--out',"
        f" {str(tmp_path / 'back')!r}, 'backend=mindformers']) == 0\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    assert tensors(tmp_path / "back") == tensors(model)
