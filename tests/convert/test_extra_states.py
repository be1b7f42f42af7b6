"""What a training stores beside weights; the `_extra_state` of Transformer Engine 2 without FP8 is an empty tensor."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from launcher.convert.containers import torch_dist
from launcher.convert.containers.records import Slot
from launcher.convert.layouts.torch_dist import other_state
from tests.convert.helpers import launch


def test_extra_states_are_empty_tensors(model: Callable[[str], Path], tmp_path: Path) -> None:
    assert launch("hf-to-mcore", "--model", model("qwen3_moe"), "--out", tmp_path / "core") == 0
    objects = torch_dist.read(tmp_path / "core").objects
    assert any("mlp.experts" in stored.key for stored in objects)
    for stored in objects:
        value = torch_dist.read_object(stored)
        assert isinstance(value, Slot), stored.key
        assert (value.shape, value.dtype) == ((0,), "U8"), stored.key


STATES = {
    "one optimizer": ("optimizer.distributed.dp_group_idx_0.gbuf_idx_0", True),
    "the experts' optimizer": ("chained_1.optimizer.distributed.dp_group_idx_1.gbuf_idx_0.param", True),
    "random state": ("rng_state", True),
    "weight": ("decoder.layers.mlp.experts.experts.linear_fc1.weight", False),
}


@pytest.mark.parametrize("name", STATES)
def test_what_a_training_adds_is_no_weight(name: str) -> None:
    key, added = STATES[name]
    assert (other_state(key) is not None) == added
