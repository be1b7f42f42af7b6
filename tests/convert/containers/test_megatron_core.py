"""The real megatron-core reads strictly, at another layout, what we laid out; and what it writes is what we lay out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from launcher.convert.containers import torch_dist
from launcher.convert.containers.records import Dtype, Inert, TensorSpec, namespace
from launcher.convert.containers.torch_objects import load
from launcher.convert.containers.transfer import OpenFiles, copy
from tests.conftest import ROOT
from tests.convert.containers.bytes_of import bytes_io, nbytes

pytestmark = pytest.mark.slow


def ranks(world: int, *args: str) -> None:
    pytest.importorskip("megatron.core")
    pytest.importorskip("psutil")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={world}"]
    done = subprocess.run(
        [*command, "-m", "tests.convert.containers.megatron_core", *args],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint that megatron-core saved with two ranks."""
    place = tmp_path_factory.mktemp("real") / "iter_0000001"
    place.mkdir()
    ranks(2, "save", str(place))
    return place


@pytest.fixture(scope="module")
def ours(real: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same checkpoint laid out by us, its bytes copied chunk by chunk."""
    place = tmp_path_factory.mktemp("ours") / "iter_0000001"
    place.mkdir()
    chunks = torch_dist.read(real).chunks
    wanted = [
        torch_dist.ChunkSpec(
            key=chunk.key,
            global_shape=chunk.global_shape,
            at=chunk.at,
            shape=chunk.slot.shape,
            dtype=chunk.slot.dtype,
        )
        for chunk in chunks
    ]
    values = {
        "decoder.layers._extra_state/shard_0_2": bytes_io(b"abc"),
        "decoder.layers._extra_state/shard_1_2": TensorSpec(name="empty", shape=(0,), dtype="U8"),
        "norm._extra_state/shard_0_1": None,
    }
    slots = torch_dist.create(
        place,
        wanted,
        objects=[torch_dist.ObjectSpec(key=key, value=value) for key, value in values.items()],
        common={"args": namespace(params_dtype=Dtype(name="BF16"), num_layers=2), "iteration": 1},
        content_metadata={"singleton_local_shards": False},
        file_bytes=1500,
    )
    with OpenFiles() as files:
        for chunk, slot in zip(chunks, slots, strict=True):
            copy(files, chunk.slot.path, chunk.slot.offset, slot.path, slot.offset, nbytes(slot))
    return place


@pytest.mark.sample(keep=1)
@pytest.mark.parametrize("world", [1, 4])
def test_megatron_core_loads_ours_strictly_at_every_layout(real, ours, world):
    for place in (real, ours):
        ranks(world, "load", str(place))
    for rank in range(world):
        name = f"loaded{rank}of{world}.json"
        loaded = json.loads((ours.parent / name).read_text())
        assert loaded == json.loads((real.parent / name).read_text())
        assert loaded["content"] == {"singleton_local_shards": False}
        assert loaded["model"]["decoder.layers._extra_state0"] == "abc"


def name_of(key: Any) -> Any:
    return (key.name, *sorted(map(repr, key.attributes.items()))) if isinstance(key, Inert) else key


def shape_of(value: Any) -> Any:
    """The classes and fields of a pickle, without what depends on the number of files and of ranks."""
    if isinstance(value, Inert):
        # DCP's own ids, and the plans that megatron-core keeps to save again faster, need not be there.
        state = {key: item for key, item in value.attributes.items() if key not in ("storage_meta", "all_local_plans")}
        return value.name, value.made, {key: shape_of(item) for key, item in state.items()} or shape_of(value.state)
    if isinstance(value, dict):
        return {name_of(key): shape_of(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [shape_of(item) for item in value]
    return type(value)


def test_file_by_file_ours_is_what_megatron_core_writes(real, ours):
    assert {path.name for path in ours.iterdir()} >= {path.name for path in real.iterdir() if path.suffix != ".distcp"}
    assert json.loads((ours / "metadata.json").read_text()) == json.loads((real / "metadata.json").read_text())
    both = [torch_dist.read(place) for place in (ours, real)]
    assert shape_of(both[0].common) == shape_of(both[1].common)
    tops = [load((place / ".metadata").read_bytes(), place, allow=("torch.distributed.",)) for place in (ours, real)]
    assert shape_of(tops[0]) == shape_of(tops[1])
