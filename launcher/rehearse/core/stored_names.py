"""Fits this model's sharded state to the names of a torch_dist checkpoint, whichever layers wrote it.

megatron-core names a norm by the layers that use it: Transformer Engine fuses it into the linear layer that follows,
local layers keep it, and save it under the fused name where the model is a GPTModel without latent attention, of
experts too. It stores all layers as one tensor, or each layer as its own where `moe_layer_freq` is a list
(megatron-core 0.16.1 gpt_layer_specs.py, transformer_block.py:822).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any

from launcher.families.weight_rows import DENSE, GROUPED_ATTENTION, LATENT_ATTENTION
from launcher.rehearse.core.errors import RehearsalError

ADAPTER = ".lora_"
"""Part of the names of an adapter's parameters."""

_LAYER = re.compile(r"(decoder\.layers\.)(\d+)\.")
_TRAINING = ("optimizer.", "rng_state", "chained_", "rerun_state")
_MTP = "mtp."
_SHOWN = 5

Shapes = Mapping[str, tuple[int, ...]]


@functools.cache
def _renamed() -> tuple[tuple[str, str], ...]:
    """Return (name with fused norms, name with separate norms) of each parameter that has two, without its ending."""
    rows = (*GROUPED_ATTENTION, *LATENT_ATTENTION, *DENSE)
    return tuple((row.core.removesuffix("weight"), row.local.removesuffix("weight")) for row in rows if row.local)


def _names(key: str) -> Iterator[str]:
    """Yield the names that a checkpoint may have for a tensor of the model, its own first."""
    yield key
    for fused, separate in _renamed():
        for old, new in ((fused, separate), (separate, fused)):
            if old in key:
                yield key.replace(old, new)


def stored(key: str, shapes: Shapes) -> tuple[str, int | None] | None:
    """Return a tensor's name in a checkpoint, and its layer where all layers are one tensor; None: it is not there."""
    for name in _names(key):
        if name in shapes:
            return name, None
        layer = _LAYER.search(name)
        whole = name[: layer.end(1)] + name[layer.end() :] if layer else name
        if layer and whole in shapes:
            return whole, int(layer[2])
    return None


class StoredNames:
    """The tensors of one checkpoint; gives a state dict their names and remembers which it took."""

    def __init__(self, path: str) -> None:
        from megatron.core.dist_checkpointing.mapping import ShardedObject
        from megatron.core.dist_checkpointing.serialization import load_sharded_metadata

        found = load_sharded_metadata(path)
        self.path = path
        self.objects = {key for key, entry in found.items() if isinstance(entry, ShardedObject)}
        self.shapes = {key: entry.global_shape for key, entry in found.items() if key not in self.objects}
        self.taken: set[str] = set()
        self.missing: set[str] = set()

    def without_absent_objects(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Return a model's state without the extra states of modules that the checkpoint does not have.

        They hold scaling factors of fp8, and nothing otherwise.
        """
        from megatron.core.dist_checkpointing.mapping import ShardedObject

        return {
            name: entry
            for name, entry in state.items()
            if not isinstance(entry, ShardedObject) or entry.unique_key in self.objects
        }

    def without_absent(self, state: Mapping[str, Any], mark: str) -> dict[str, Any]:
        """Return a model's state without the parameters with `mark` in their names that the checkpoint does not have.

        They keep their initial values.
        """
        keys = {name: getattr(entry, "key", "") for name, entry in state.items()}
        return {
            name: entry for name, entry in state.items() if mark not in keys[name] or stored(keys[name], self.shapes)
        }

    def rename(self, state: dict[str, Any]) -> None:
        """Give every tensor of a sharded state dict its name, and its place, in the checkpoint."""
        from megatron.core.dist_checkpointing.dict_utils import dict_list_map_inplace

        dict_list_map_inplace(self._renamed, state)

    def _renamed(self, entry: Any) -> Any:
        import dataclasses

        from megatron.core.dist_checkpointing.dict_utils import dict_list_map_outplace
        from megatron.core.dist_checkpointing.mapping import ShardedTensor, ShardedTensorFactory

        if isinstance(entry, ShardedTensorFactory):
            build = entry.build_fn

            def renamed_build(*args: Any) -> Any:
                return dict_list_map_outplace(self._renamed, build(*args))

            self._take(entry.key)
            return dataclasses.replace(entry, build_fn=renamed_build)
        return self._fitted(entry) if isinstance(entry, ShardedTensor) else entry

    def _take(self, key: str) -> tuple[str, int | None] | None:
        found = stored(key, self.shapes)
        if found is None:
            self.missing.add(key)
        else:
            self.taken.add(found[0])
        return found

    def _fitted(self, tensor: Any) -> Any:
        import dataclasses

        found = self._take(tensor.key)
        if found is None:
            return tensor
        name, layer = found
        if layer is None:
            return dataclasses.replace(tensor, key=name)
        count = self.shapes[name][0]
        if layer >= count:
            raise RehearsalError(f"{self.path}: has {count} layers, fewer than this model")
        return dataclasses.replace(
            tensor,
            key=name,
            global_shape=(count, *tensor.global_shape),
            global_offset=(layer, *tensor.global_offset),
            axis_fragmentations=(count, *(tensor.axis_fragmentations or ())),
            prepend_axis_num=tensor.prepend_axis_num + 1,
        )

    def check_complete(self, layers: int, *, mtp: bool) -> tuple[str, ...]:
        """Return notes; RehearsalError where model and checkpoint have different weights. All ranks call this."""
        import torch

        found: list[Any] = [None] * torch.distributed.get_world_size()
        torch.distributed.all_gather_object(found, (self.taken, self.missing))
        taken = set().union(*(names for names, _ in found))
        missing = sorted(set().union(*(names for _, names in found)))
        other = sorted(key for key in self.shapes.keys() - taken if not key.startswith(_TRAINING))
        left_out = [key for key in other if key.startswith(_MTP) and not mtp]
        problems = [f"{key}: this model has it, the checkpoint does not" for key in missing]
        problems += [f"{key}: the checkpoint has it, this model does not" for key in other if key not in left_out]
        problems += [
            f"{name} has {self.shapes[name][0]} layers, this model {layers}"
            for name in sorted(taken)
            if name.startswith("decoder.layers.")
            and not name.split(".")[2].isdigit()
            and self.shapes[name][0] != layers
        ]
        if problems:
            more = [f"and {len(problems) - _SHOWN} more such tensors"] if len(problems) > _SHOWN else []
            other_training = bool(missing) and all(key.startswith(_TRAINING) or ADAPTER in key for key in missing)
            works = ["works: --finetune, which loads the weights alone"] if other_training else []
            raise RehearsalError(*(f"{self.path}: {problem}" for problem in problems[:_SHOWN]), *more, *works)
        return ("MTP layers of the checkpoint are not loaded: this model has none",) if left_out else ()
