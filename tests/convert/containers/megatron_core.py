"""One rank of the real megatron-core: `save DIR` writes a small checkpoint, `load DIR` reads one and tells of it."""

from __future__ import annotations

import argparse
import io
import json
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

KEYS = {"decoder.layers.w": (2, 8, 4), "embedding.w": (8, 6), "norm": (5,)}
OBJECTS = {"decoder.layers._extra_state": 2, "norm._extra_state": 1}


def sharded(rank: int, world: int, *, filled: bool) -> dict[str, Any]:
    """A state dict as a model of two layers has it, its matrices cut by rows among the ranks."""
    import torch
    from megatron.core.dist_checkpointing.mapping import ShardedObject, ShardedTensor

    def part(name: str, rows: int, columns: int, layer: int) -> Any:
        whole = torch.arange(rows * columns).reshape(rows, columns).to(torch.bfloat16) + 1000 * layer
        return (whole if filled else torch.zeros_like(whole)).chunk(world)[rank].contiguous()

    state: dict[str, Any] = {}
    for layer in range(2):
        data = part("w", 8, 4, layer)
        offsets = ((0, layer, 2), (1, rank, world))
        state[f"w{layer}"] = ShardedTensor.from_rank_offsets("decoder.layers.w", data, *offsets, prepend_axis_num=1)
    state["embedding"] = ShardedTensor.from_rank_offsets("embedding.w", part("e", 8, 6, 5), (0, rank, world))
    norm = torch.full((5,), 2.5 if filled else 0.0)
    state["norm"] = ShardedTensor.from_rank_offsets("norm", norm, replica_id=rank)
    values = [io.BytesIO(b"abc"), torch.empty(0, dtype=torch.uint8), None]
    objects = [(key, count, number) for key, count in OBJECTS.items() for number in range(count)]
    for (key, count, number), value in zip(objects, values, strict=True):
        data = value if filled else None
        state[f"{key}{number}"] = ShardedObject(key, data, (count,), (number,), replica_id=rank)
    return {"model": state}


def comparable(value: Any) -> Any:
    """What is compared of a loaded value."""
    import torch

    if isinstance(value, torch.Tensor):
        return [
            str(value.dtype),
            list(value.shape),
            sha256(value.contiguous().view(-1).view(torch.uint8).numpy()).hexdigest(),
        ]
    if isinstance(value, io.BytesIO):
        return value.getvalue().decode()
    if isinstance(value, argparse.Namespace):
        return {key: str(item) for key, item in vars(value).items()}
    return {key: comparable(item) for key, item in value.items()} if isinstance(value, dict) else value


def main(action: str, place: Path) -> None:
    from launcher.rehearse.core import environment

    environment.import_megatron()
    import torch
    from megatron.core import dist_checkpointing, parallel_state

    torch.distributed.init_process_group("gloo")
    rank, world = environment.rank(), environment.world_size()
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=world)
    state = sharded(rank, world, filled=action == "save")
    if action == "save":
        common = {"args": argparse.Namespace(params_dtype=torch.bfloat16, num_layers=2), "iteration": 1}
        content = {"singleton_local_shards": False}
        dist_checkpointing.save({**common, **state}, str(place), content_metadata=content)
    else:
        loaded = dist_checkpointing.load(state, str(place), strict="raise_all")
        listed = dist_checkpointing.load_tensors_metadata(str(place))
        assert {key: tensor.global_shape for key, tensor in listed.items()} == KEYS
        content = dist_checkpointing.load_content_metadata(str(place))
        (place.parent / f"loaded{rank}of{world}.json").write_text(
            json.dumps({**comparable(loaded), "content": content})
        )
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
