"""`_extra_state` objects hold what Transformer Engine 2 stores without FP8: an empty tensor of bytes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from launcher.convert.containers import torch_dist
from launcher.convert.containers.records import Slot
from tests.convert.helpers import launch


def test_extra_states_are_empty_tensors(model: Callable[[str], Path], tmp_path: Path) -> None:
    assert launch("hf-to-mcore", "--model", model("qwen3_moe"), "--out", tmp_path / "core") == 0
    objects = torch_dist.read(tmp_path / "core").objects
    assert any("mlp.experts" in stored.key for stored in objects)
    for stored in objects:
        value = torch_dist.read_object(stored)
        assert isinstance(value, Slot), stored.key
        assert (value.shape, value.dtype) == ((0,), "U8"), stored.key
