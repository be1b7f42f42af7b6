"""Our LoRA adapters are those of Megatron-SWIFT: it writes the same from PEFT's, and reads ours back into PEFT's."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from backends.megatron.rehearse import NATIVE_CPU
from launcher.convert.containers import torch_dist
from tests.backends.megatron.test_bridge_checkpoint import FLOAT32, _look, _model, model, swift
from tests.convert.adapters import adapter_arrays, linear_modules, write_adapter
from tests.convert.helpers import launch, tensors
from tests.rehearse.native.runs import run_native

pytestmark = pytest.mark.slow
__all__ = ["model", "swift"]
# Families, what ms-swift calls them, and how many ranks share them by tensor parallelism.
CASES: Mapping[str, tuple[str, str, int]] = {
    "qwen2": ("qwen2", "qwen2", 1),
    "qwen2 tp2": ("qwen2", "qwen2", 2),
    "qwen2_moe": ("qwen2_moe", "qwen2_moe", 1),
    "qwen2_moe tp2": ("qwen2_moe", "qwen2_moe", 2),
    "qwen3_moe": ("qwen3_moe", "qwen3_moe", 1),
    "deepseek_v2": ("deepseek_v2", "deepseek_v2", 1),
}


def _export(swift: Path, kind: str, tp: int, folder: Path, **values: Any) -> None:
    args = {
        "model_type": kind,
        "template": "qwen3",
        "tensor_model_parallel_size": tp,
        "merge_lora": "false",
        **({"expert_tensor_parallel_size": 1} if "moe" in kind else {}),
        **({"perform_initialization": "true"} if tp > 1 else {}),
        **FLOAT32,
        **values,
    }
    argv = [str(swift.parent / "megatron"), "export", *(str(w) for k, v in args.items() for w in (f"--{k}", v))]
    run_native(NATIVE_CPU, argv, cwd=folder, env={"NPROC_PER_NODE": str(tp), "HF_HUB_OFFLINE": "1"}).check()


def _bytes(path: Path) -> dict[tuple[str, tuple[int, ...]], bytes]:
    """Every global tensor of a checkpoint by row of its first dimension: chunks may be cut differently."""
    import numpy as np

    found: dict[str, Any] = {}
    for chunk in torch_dist.read(path).chunks:
        whole = found.setdefault(chunk.key, np.zeros(chunk.global_shape, np.float32))
        data = np.fromfile(chunk.slot.path, np.float32, int(np.prod(chunk.slot.shape)), offset=chunk.slot.offset)
        at = tuple(slice(first, first + count) for first, count in zip(chunk.at, chunk.slot.shape, strict=True))
        whole[at] = data.reshape(chunk.slot.shape)
    return {(key, value.shape): value.tobytes() for key, value in found.items()}


@pytest.mark.sample(keep=1)
@pytest.mark.parametrize(("name", "kind", "tp"), CASES.values(), ids=CASES.keys())
def test_megatron_swift_writes_and_reads_the_same(
    name: str, kind: str, tp: int, swift: Path, model: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = _model(name, model, swift, tmp_path)
    adapter = write_adapter(tmp_path / "adapter", adapter_arrays(linear_modules(folder)))
    theirs, ours, back = tmp_path / "theirs", tmp_path / "ours", tmp_path / "back"
    _export(swift, kind, tp, tmp_path, model=folder, to_mcore="true", adapters=adapter, output_dir=theirs)
    args = ["--model", folder, "--adapter", adapter, "--out", ours, "--backend", "megatron", f"parallel.tp={tp}"]
    assert launch("hf-to-mcore", *args) == 0
    assert _look(ours)[1] == _look(theirs)[1]
    assert _bytes(ours) == _bytes(theirs)
    _export(swift, kind, tp, tmp_path, model=folder, to_hf="true", mcore_adapter=ours, output_dir=back)
    assert tensors(back) == tensors(adapter)
    reported = json.loads((back / "adapter_config.json").read_text())
    assert (reported["r"], reported["lora_alpha"], reported["use_rslora"]) == (4, 8, False)
    assert launch("mcore-to-hf", "--checkpoint", theirs, "--model", folder, "--out", tmp_path / "again") == 0
    assert tensors(tmp_path / "again") == tensors(adapter)
