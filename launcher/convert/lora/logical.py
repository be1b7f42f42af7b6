"""The logical tensors of an adapter: the factors of each module that it changes, under PEFT's names.

A training stack stores one pair of factors for each of its linear layers, and some of these combine several modules of
the Hugging Face model (queries, keys and values; gate and up). Such modules share their A: in the logical model it is
the first module's, and the others' are copies of it. Everything else, both directions and every layout, then follows
from the rows of the family's table, as for weights.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from launcher.convert.containers.errors import ConvertError
from launcher.convert.logical import Copy, Instance, Logical, prefix_in, without_mtp
from launcher.families.weights import Kind, Row, hf
from launcher.records import dataclass

A: Final = ".lora_A.weight"
B: Final = ".lora_B.weight"
# Default adapter name of PEFT and the training stacks.
ADAPTER: Final = "default"
_MARK: Final = ".lora_"


Shared = tuple[tuple[str, str], ...]
"""Pairs of sibling modules (last name components) that a stack fuses into one layer, besides the table's rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterLogical(Logical):
    """The logical tensors of an adapter.

    Attributes:
        base: the model that it belongs to.
        rank, alpha, rslora: the product of the factors is scaled by alpha / rank (`rslora`: alpha / sqrt(rank)).
        config: text of the source's adapter_config.json; empty if it had none.
        shared: modules fused into one layer, besides the table's rows.
    """

    base: Logical
    rank: int
    alpha: float
    rslora: bool = False
    config: str = ""
    shared: Shared = ()

    @property
    def modules(self) -> tuple[str, ...]:
        """The adapted modules, in the model's order."""
        named = {**dict.fromkeys(self.tensors, 0), **dict.fromkeys(self.copies, 0)}
        return tuple(name.removesuffix(B) for name in named if name.endswith(B))


def base_of(logical: Logical) -> Logical:
    """Return the base model of an adapter, or the model itself."""
    return logical.base if isinstance(logical, AdapterLogical) else logical


def different_scales(left: Logical, right: Logical) -> list[str]:
    """Return how two adapters differ in rank, alpha or rslora."""
    assert isinstance(left, AdapterLogical)
    assert isinstance(right, AdapterLogical)
    found = [(one.rank, float(one.alpha), one.rslora) for one in (left, right)]
    names = ("rank", "alpha", "rslora")
    return [f"{name}: {a} and {b}" for name, a, b in zip(names, *found, strict=True) if a != b]


def adaptable(base: Logical) -> Iterator[tuple[Instance, tuple[str, ...]]]:
    """Yield every training stack tensor that can have factors, with the modules that it consists of.

    Raises:
        ConvertError: adapters of the family are not converted.
    """
    if base.family.no_adapters:
        raise ConvertError(f"adapters of {base.model.model_type} are not converted: {base.family.no_adapters}")
    for instance in base.instances:
        if instance.row.kind == "vocabulary" or not instance.row.core.endswith(".weight"):
            continue
        if all(len(shape) == 2 for shape in instance.shapes) and min(min(shape) for shape in instance.shapes) > 1:
            yield instance, tuple(name.removesuffix(".weight") for name in instance.logical)


def without_unused_mtp(base: Logical, modules: Collection[str]) -> Logical:
    """Return the model without multi-token-prediction layers if an adapter changes none of them."""
    if not base.model.num_nextn_predict_layers:
        return base
    first = base.model.num_hidden_layers or 0
    extra = tuple(prefix_in(base, first + index) for index in range(base.model.num_nextn_predict_layers))
    return base if any(module.startswith(extra) for module in modules) else without_mtp(base)


def adapter_logical(
    base: Logical,
    modules: Collection[str],
    *,
    rank: int,
    alpha: float,
    rslora: bool = False,
    config: str = "",
    shared: Shared = (),
) -> AdapterLogical:
    """Return the logical tensors of an adapter that changes `modules`.

    Raises:
        ConvertError: a module cannot be adapted, or a module that shares its factor A is missing.
    """
    base = without_unused_mtp(base, modules)
    instances: list[Instance] = []
    firsts: dict[str, str] = {}
    problems: list[str] = []
    left = set(modules)
    for parts in groups(base, shared):
        held = [part for part in parts if part in left]
        left.difference_update(held)
        if held and len(held) < len(parts):
            absent = ", ".join(part for part in parts if part not in held)
            problems.append(f"{held[0]}: {absent} has no factors, and the training stack keeps them in one layer")
        elif held:
            firsts.update(dict.fromkeys(parts, parts[0]))
    problems += [f"{name}: not a linear layer that training stacks give factors to" for name in sorted(left)]
    if problems:
        raise ConvertError(problems)
    for instance, parts in adaptable(base):
        if parts[0] in firsts:
            instances += _factors(instance, parts, firsts[parts[0]], rank)
    tensors = {
        name: shape for instance in instances for name, shape in zip(instance.logical, instance.shapes, strict=True)
    }
    return AdapterLogical(
        model=base.model,
        family=base.family,
        tensors=tensors,
        copies={part + A: Copy(of=first + A, written=True) for part, first in firsts.items() if part != first},
        instances=tuple(instances),
        base=base,
        rank=rank,
        alpha=alpha,
        rslora=rslora,
        config=config,
        shared=shared,
    )


def groups(base: Logical, shared: Shared = ()) -> list[tuple[str, ...]]:
    """Return the modules of the model, grouped by the training stack layer that they form."""
    found = {parts[0]: parts for _, parts in adaptable(base)}
    for left, right in shared:
        for first in [first for first in found if first.rpartition(".")[2] == right]:
            other = f"{first.rpartition('.')[0]}.{left}"
            if other in found:
                found[other] += found.pop(first)
    return list(found.values())


def _factors(instance: Instance, parts: tuple[str, ...], first: str, rank: int) -> Iterator[Instance]:
    """Yield the two factors of a training stack tensor: row-parallel layers split A, all others split B."""
    row, columns = instance.row, instance.shapes[0][1]
    stem = row.core.removesuffix(".weight")
    yield Instance(
        row=Row(
            core=f"{stem}{_MARK}A.{ADAPTER}.weight",
            hf=(hf("", rank, columns),),
            kind=_side(row.kind, row.kind == "row"),
            local_kind=None,
        ),
        place=instance.place,
        layer=instance.layer,
        expert=instance.expert,
        logical=(first + A,),
        shapes=((rank, columns),),
    )
    yield Instance(
        row=Row(
            core=f"{stem}{_MARK}B.{ADAPTER}.weight",
            hf=tuple(hf("", tensor.shape[0], rank) for tensor in row.hf),
            kind=_side(row.kind, row.kind != "row"),
            local_kind=row.local_kind,
        ),
        place=instance.place,
        layer=instance.layer,
        expert=instance.expert,
        logical=tuple(part + B for part in parts),
        shapes=tuple((shape[0], rank) for shape in instance.shapes),
    )


def _side(kind: Kind, split: bool) -> Kind:
    return kind if split else "replicated"


def covered(base: Logical, modules: Collection[str]) -> tuple[list[str], list[str]]:
    """Return the training stack layers that an adapter changes, and modules of those layers without factors.

    Training stacks name the layers with factors once for the whole model: `linear_qkv` selects it in every layer.

    Returns:
        Names such as `self_attention.linear_qkv` or `mlp.experts.linear_fc1`, and modules without factors while others
        of the same name have some.
    """
    places: dict[str, list[tuple[str, ...]]] = {}
    for instance, parts in adaptable(base):
        name = instance.row.core.removesuffix(".weight").replace(".{expert}", "")
        places.setdefault(name, []).append(parts)
    held = set(modules)
    named, missing = [], []
    for name, groups in places.items():
        if any(part in held for parts in groups for part in parts):
            named.append(name)
            missing += [part for parts in groups for part in parts if part not in held]
    return named, missing


def target_modules(base: Logical, modules: Collection[str]) -> list[str]:
    """Return the shortest names that select exactly these layers: `linear_fc1` if all of that name have factors."""
    named, _ = covered(base, modules)
    every = {instance.row.core.removesuffix(".weight").replace(".{expert}", "") for instance, _ in adaptable(base)}
    found: dict[str, None] = {}
    for name in named:
        leaf = name.rpartition(".")[2]
        alike = {other for other in every if other.rpartition(".")[2] == leaf}
        found[leaf if alike <= set(named) else name] = None
    return list(found)
