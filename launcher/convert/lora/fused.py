"""Factors of whole parameters (PEFT's `target_parameters`): one pair for the fused experts of transformers 5.

The factor A of a parameter [experts, out, in] is [experts * rank, in], expert after expert; B is [out, rank * experts]
with the experts as the fastest index (peft 0.20 tuners/lora/layer.py ParamWrapper.get_delta_weight). The same holds for
[experts, in, out] where transformers' class declares it (`is_transposed`). The wrapper of the first parameter of a
module is nested in the second one's, which is why its factors are named `base_layer`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from launcher.convert.logical import Logical, layer_prefix
from launcher.convert.records import StridedRange, TensorSlice
from launcher.families.weights import Spelling

_ENDS: Final = {".lora_A.weight": "A", ".lora_B.weight": "B"}


def fused_boxes(
    base: Logical, name: str, shapes: Mapping[str, tuple[int, ...]]
) -> tuple[str, tuple[TensorSlice, ...]] | None:
    """Return the fused parameter of a factor, and slices of each expert's factors; None if it is not fused.

    Args:
        base: the model.
        name: such as `model.layers.0.mlp.experts.base_layer.lora_A.weight`.
        shapes: of all factors by name: A and B together determine whether they belong to gate and up or to down.
    """
    end = next((end for end in _ENDS if name.endswith(end)), None)
    if end is None:
        return None
    wrapper = name.removesuffix(end)
    a, b = (shapes.get(wrapper + other, ()) for other in _ENDS)
    experts = base.model.num_experts or 0
    if len(a) != 2 or len(b) != 2 or not experts or a[0] % experts or a[0] != b[1]:
        return None
    module = wrapper
    while module.endswith(".base_layer"):
        module = module.removesuffix(".base_layer")
    for prefix, spelling in _spellings(base):
        if prefix + spelling.stored.rpartition(".")[0] == module:
            parts = _parts(base, prefix, spelling)
            rows, columns = base.tensors[parts[0][0]]
            if (a[1], b[0]) == (columns, rows * len(parts[0])):
                return prefix + spelling.stored, tuple(
                    _boxes(parts, end, spelling, rank=a[0] // experts, rows=rows, columns=columns)
                )
    return None


def fused_modules(
    base: Logical, modules: Collection[str], rank: int
) -> Iterator[tuple[str, tuple[int, ...], tuple[TensorSlice, ...], tuple[str, ...]]]:
    """Yield (name, shape, slices, modules) of the factors of every fused parameter whose modules all have factors."""
    held = set(modules)
    found: dict[str, list[tuple[Spelling, list[tuple[str, ...]]]]] = {}
    for prefix, spelling in _spellings(base):
        parts = _parts(base, prefix, spelling)
        if all(part.removesuffix(".weight") in held for expert in parts for part in expert):
            found.setdefault(prefix + spelling.stored.rpartition(".")[0], []).append((spelling, parts))
    for module, wrapped in found.items():
        for place, (spelling, parts) in enumerate(wrapped):
            rows, columns = base.tensors[parts[0][0]]
            names = tuple(part.removesuffix(".weight") for expert in parts for part in expert)
            inner = module + ".base_layer" * (len(wrapped) - 1 - place)
            shapes = {
                ".lora_A.weight": (len(parts) * rank, columns),
                ".lora_B.weight": (rows * len(parts[0]), rank * len(parts)),
            }
            for end, shape in shapes.items():
                boxes = tuple(_boxes(parts, end, spelling, rank=rank, rows=rows, columns=columns))
                yield inner + end, shape, boxes, names


def _spellings(base: Logical) -> Iterator[tuple[str, Spelling]]:
    for layer in range((base.model.num_hidden_layers or 0) + base.model.num_nextn_predict_layers):
        prefix = layer_prefix(base.family, layer)
        for spelling in base.family.spellings:
            shape = base.tensors.get(prefix + spelling.parts[0].replace("{expert}", "0"), ())
            # Of swapped dimensions that PEFT does not know of, factors would be other matrices.
            known = not spelling.transposed or spelling.declared_transposed
            if "{expert}" in spelling.parts[0] and len(shape) == 2 and known:
                yield prefix, spelling


def _parts(base: Logical, prefix: str, spelling: Spelling) -> list[tuple[str, ...]]:
    """Return the tensors of each expert that the parameter consists of."""
    return [
        tuple(prefix + part.replace("{expert}", str(expert)) for part in spelling.parts)
        for expert in range(base.model.num_experts or 0)
    ]


def _boxes(
    parts: list[tuple[str, ...]], end: str, spelling: Spelling, *, rank: int, rows: int, columns: int
) -> Iterator[TensorSlice]:
    experts = len(parts)
    for expert, names in enumerate(parts):
        for place, name in enumerate(names):
            logical = name.removesuffix(".weight") + end
            if _ENDS[end] == "A":
                runs = (StridedRange(start=expert * rank, count=rank), StridedRange(start=0, count=columns))
                yield TensorSlice(logical=logical, logical_at=((0, rank), (0, columns)), stored_at=runs)
            else:
                apart = StridedRange(start=place, count=rows, step=len(names))
                runs = (
                    apart if spelling.interleaved else StridedRange(start=place * rows, count=rows),
                    StridedRange(start=expert, count=rank, step=experts),
                )
                yield TensorSlice(logical=logical, logical_at=((0, rows), (0, rank)), stored_at=runs)
