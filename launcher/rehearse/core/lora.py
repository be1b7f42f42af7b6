"""LoRA adapters on megatron-core's parallel linear layers, with PEFT's formula: y + B(A(dropout(x))) * scale.

A is drawn as PEFT draws it, independently of the layout; B is 0. Their names are those of Megatron-SWIFT's checkpoints.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from megatron.core.tensor_parallel import mappings
from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear
from megatron.core.transformer.mlp import apply_swiglu_sharded_factory
from megatron.core.transformer.utils import make_sharded_tensors_for_checkpoint
from torch.nn.functional import dropout, linear

from launcher.rehearse.core.errors import RehearsalError
from launcher.rehearse.core.initial_weights import Recorder
from launcher.rehearse.core.options import LoraOptions
from launcher.rehearse.core.stored_names import ADAPTER

_ALL = "all-linear"
_NAME = "default"
_KEYS = (f"lora_A.{_NAME}.weight", f"lora_B.{_NAME}.weight")


class _Factor(torch.nn.Module):
    """One factor of an adapter."""

    def __init__(self, rows: int, columns: int, like: Any) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(rows, columns, dtype=like.dtype, device=like.device))
        self.weight.allreduce = getattr(like, "allreduce", True)  # False: an expert's


def add_adapters(chunk: Any, options: LoraOptions, recorder: Recorder) -> None:
    """Freeze a model chunk and add adapters to the layers that `options` names; A's initialisers go to `recorder`.

    Raises:
        RehearsalError: a name is that of no linear layer.
    """
    layers = {
        name: layer
        for name, layer in chunk.named_modules()
        if isinstance(layer, ColumnParallelLinear | RowParallelLinear) and _last(name).startswith("linear_")
    }
    for parameter in chunk.parameters():
        parameter.requires_grad_(False)
    names = set(options.target_modules) or {_ALL}
    unknown = names - {_ALL} - {_last(name) for name in layers}
    if unknown and layers:
        raise RehearsalError(
            f"lora.target_modules {', '.join(sorted(unknown))}: this model has no such linear layers; works: "
            f"{', '.join(sorted({_last(name) for name in layers}))}, {_ALL}"
        )
    for name, layer in layers.items():
        if _ALL in names or _last(name) in names:
            _add(layer, options, gated=_last(name) == "linear_fc1" and chunk.config.gated_linear_unit)
            recorder.add(_factors(layer)[0], _draw)
    if getattr(chunk, "embedding", None) is not None:
        # Recomputation of whole layers returns no gradient where no input has one.
        chunk.embedding.register_forward_hook(lambda _module, _inputs, output: output.requires_grad_(True))


def trainable(chunks: list[Any]) -> list[Any]:
    """Return the parameters of model chunks that are trained."""
    return [parameter for chunk in chunks for parameter in chunk.parameters() if parameter.requires_grad]


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _draw(tensor: Any) -> None:
    torch.nn.init.kaiming_uniform_(tensor, a=math.sqrt(5))


def _add(layer: Any, options: LoraOptions, *, gated: bool) -> None:
    rows, columns = layer.weight.shape
    layer.lora_A = torch.nn.ModuleDict({_NAME: _Factor(options.rank, columns, layer.weight)})
    layer.lora_B = torch.nn.ModuleDict({_NAME: _Factor(rows, options.rank, layer.weight)})
    a, b = _factors(layer)
    by_columns = isinstance(layer, ColumnParallelLinear)
    split, axis = (b, 0) if by_columns else (a, 1)
    split.tensor_model_parallel = True
    split.partition_dim, split.partition_stride = axis, 1
    forward = _column if by_columns else _row

    def add(module: Any, inputs: tuple[Any, ...], output: tuple[Any, Any]) -> tuple[Any, Any]:
        tokens = dropout(inputs[0], options.dropout, module.training)
        return output[0] + forward(module, tokens) * options.scale, output[1]

    layer.register_forward_hook(add, prepend=True)
    _store(layer, {_KEYS[axis == 0]: axis}, gated=gated)


def _factors(layer: Any) -> tuple[Any, Any]:
    return layer.lora_A[_NAME].weight, layer.lora_B[_NAME].weight


def _column(layer: Any, tokens: Any) -> Any:
    """Apply the adapter of a layer split by output: A is whole on each rank, B is split."""
    (a, b), group = _factors(layer), layer.tp_group
    if group.size() == 1:
        return linear(linear(tokens, a), b)
    if layer.explicit_expert_comm:  # the dispatcher gathered the tokens, and sums their gradients
        return linear(linear(tokens, _summed_gradient(a, group)), b)
    if layer.sequence_parallel:
        inner = linear(tokens, _summed_gradient(a, group))
        return linear(mappings.gather_from_sequence_parallel_region(inner, group=group), b)
    return linear(_summed_gradient(linear(tokens, a), group), b)


def _row(layer: Any, tokens: Any) -> Any:
    """Apply the adapter of a layer split by input: A is split, B is whole on each rank."""
    (a, b), group = _factors(layer), layer.tp_group
    inner = linear(tokens, a)
    if group.size() == 1:
        return linear(inner, b)
    if layer.explicit_expert_comm:  # the dispatcher sums the ranks' outputs
        return linear(inner, _summed_gradient(b, group))
    if layer.sequence_parallel:
        inner = mappings.reduce_scatter_to_sequence_parallel_region(inner, group=group)
        return linear(inner, _summed_gradient(b, group))
    return linear(mappings.reduce_from_tensor_model_parallel_region(inner, group=group), b)


class _SummedGradient(torch.autograd.Function):
    """The identity whose backward sums over the ranks of a group, whatever the gradient's memory layout."""

    @staticmethod
    def forward(context: Any, tensor: Any, group: Any) -> Any:
        context.group = group
        return tensor.view_as(tensor)

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        total = gradients[0].contiguous().clone()
        torch.distributed.all_reduce(total, group=context.group)
        return total, None


def _summed_gradient(tensor: Any, group: Any) -> Any:
    return _SummedGradient.apply(tensor, group)


def _store(layer: Any, axes: dict[str, int], *, gated: bool) -> None:
    """Extend a layer's sharded state by its adapter; of a gated layer, B is split into gate and up like the weight."""
    base = layer.sharded_state_dict

    def sharded_state_dict(prefix: str = "", sharded_offsets: Any = (), metadata: Any = None) -> dict[str, Any]:
        found = {
            key: entry for key, entry in base(prefix, sharded_offsets, metadata).items() if ADAPTER not in f".{key}"
        }
        factors = dict(zip(_KEYS, _factors(layer), strict=True))
        added = make_sharded_tensors_for_checkpoint(
            factors,
            prefix,
            axes,
            sharded_offsets,
            tp_group=layer.tp_group,
            dp_cp_group=metadata["dp_cp_group"],
        )
        if gated:
            key = prefix + _KEYS[1]
            added[key] = apply_swiglu_sharded_factory(added[key], sharded_offsets)
        return {**found, **added}

    layer.sharded_state_dict = sharded_state_dict
