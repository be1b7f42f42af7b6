"""Reads a PEFT LoRA adapter for a merge, and maps each pair of factors to the model's tensors."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from launcher.convert.casts import FLOATS
from launcher.convert.containers import safetensors
from launcher.convert.containers.errors import ConvertError
from launcher.convert.containers.records import Slot
from launcher.convert.layouts.huggingface import huggingface_read
from launcher.convert.logical import Logical, logical_model
from launcher.convert.lora.fused import fused_boxes
from launcher.convert.lora.held import Held, held_whole
from launcher.convert.model import model_in
from launcher.records import dataclass

CONFIG: Final = "adapter_config.json"
WEIGHTS: Final = "adapter_model.safetensors"
_PREFIX: Final = "base_model.model."
_ENDS: Final = {"A": ".lora_A.weight", "B": ".lora_B.weight"}
_FACTOR: Final = re.compile(r"(?P<module>.+)\.(?:lora_(?P<of>[AB])\.weight|lora_embedding_(?P<table>[AB]))")
# Fields that change the computation, and why an adapter that sets them cannot be merged.
_REFUSED: Final = {
    "use_dora": "DoRA scales each row by its norm, which depends on the number format of the training",
    "layer_replication": "its layers are copies that the model's config.json does not have",
    "lora_bias": "factors with a bias",
    "use_qalora": "quantised factors",
    "use_bdlora": "block-diagonal factors",
    "alora_invocation_tokens": "activated LoRA applies to some tokens only: no equivalent weights exist",
    "trainable_token_indices": "it changes single rows of the embedding",
    "arrow_config": "a router chooses among adapters: no equivalent weights exist",
    "fan_in_fan_out": "transposed weights, which no model that is converted here has",
}
# Initialisations that change the base weights; the adapter is relative to the changed weights.
_OTHER_START: Final = ("pissa", "olora", "corda", "loftq", "lora_ga")


@dataclass(frozen=True, slots=True, kw_only=True)
class Factors:
    """weight + scale * B @ A.

    Attributes:
        weight: a stored tensor of the model, or a block of one (an expert's part of a fused tensor).
        a, b: where A [rank, in] and B [out, rank] are stored.
        scale: alpha / rank, or alpha / sqrt(rank).
        table: the tensor is an embedding: A is [rank, rows], B is [width, rank], and the product is transposed.
    """

    weight: Held
    a: Held
    b: Held
    scale: float
    table: bool = False

    @property
    def rank(self) -> int:
        """Rows of A."""
        return self.a.shape[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """A LoRA adapter, mapped to the tensors of one model.

    Attributes:
        factors: stored tensor to the factors added to it: one pair for the whole tensor, or one for each part.
        replaced: tensor to its replacement (modules_to_save, trained biases).
    """

    folder: Path
    factors: Mapping[str, tuple[Factors, ...]]
    replaced: Mapping[str, Slot]


class _Base:
    """The model's weights by name; experts are found whether they are stored separately or fused (transformers 5)."""

    def __init__(self, model: Path, slots: Iterable[Slot]) -> None:
        self.model = model
        self.slots = {slot.name: slot for slot in slots}
        self._places: dict[str, Held] | None = None
        self.logical: Logical | None = None

    def weight(self, name: str) -> Held | None:
        """Return where a weight is stored; None if the model has none of that name."""
        slot = self.slots.get(name)
        if slot is not None:
            return held_whole(name, slot)
        usual = self.usual(name)
        slot = self.slots.get(usual)
        return self.places().get(usual) if slot is None else held_whole(usual, slot)

    def usual(self, name: str) -> str:
        """Return the name in the model's files of a tensor that PEFT names as transformers' class does."""
        self.places()
        return name if self.logical is None else self.logical.family.usual(name)

    def places(self) -> dict[str, Held]:
        """Return where each weight is stored; empty for an unknown family."""
        if self._places is None:
            self._places = {}
            try:
                logical = logical_model(model_in(self.model))
                self.logical, stored = huggingface_read(logical, list(self.slots.values()))
            except ConvertError:
                return self._places
            for content in stored.contents:
                self._places.update({box.logical: Held(slot=content.slot, box=box) for box in content.boxes})
        return self._places


def read_adapter(folder: Path, model: Path, slots: Iterable[Slot], *, tied: bool) -> Adapter:
    """Read an adapter and find the tensors of the model that it changes.

    Args:
        folder: of adapter_config.json and adapter_model.safetensors.
        model: the model's folder.
        slots: the model's tensors.
        tied: output layer and embedding share one tensor.

    Raises:
        ConvertError: all reasons why it cannot be merged.
    """
    config = read_config(folder)
    problems = refusals(folder, config)
    if problems:
        raise ConvertError(problems)
    stored = {slot.name: slot for slot in safetensors.read(weights_file(folder)).slots}
    base = _Base(model, slots)
    pairs, others = _sorted(stored.values())
    factors: dict[str, tuple[Factors, ...]] = {}
    for module, pair in pairs.items():
        for found in _factors(folder, config, module, pair, base, problems):
            factors[found.weight.slot.name] = (*factors.get(found.weight.slot.name, ()), found)
    problems += _partly(factors) if not problems else []
    replaced = _replaced(folder, others, base, problems)
    both = sorted(factors.keys() & replaced.keys())
    problems += [f"{name}: the adapter has both factors and a whole tensor for it" for name in both]
    for name in (*factors, *replaced):
        if tied and name in ("lm_head.weight", "model.embed_tokens.weight"):
            problems.append(f"{name}: embedding and output layer are one tensor, the adapter changes one use of it")
    if not problems and not factors and not replaced:
        problems.append(f"{folder}: the adapter changes nothing")
    if problems:
        raise ConvertError(problems)
    ordered = {name: tuple(sorted(parts, key=_start)) for name, parts in factors.items()}
    return Adapter(folder=folder, factors=ordered, replaced=replaced)


def _start(factors: Factors) -> tuple[int, ...]:
    return tuple(run.start for run in factors.weight.box.stored_at)


def _partly(factors: Mapping[str, tuple[Factors, ...]]) -> list[str]:
    """Return problems of stored tensors of which two pairs of factors change the same block."""
    problems = []
    for name, found in factors.items():
        regions = [one.weight.box.stored_at for one in found]
        if len(set(regions)) < len(regions):
            problems.append(f"{name}: two pairs of factors change the same part of it")
    return problems


def read_config(folder: Path) -> Mapping[str, Any]:
    """Return adapter_config.json.

    Raises:
        ConvertError: the file is missing, is not an adapter configuration, or has a rank or alpha that is no number.
    """
    path = folder / CONFIG
    if not path.is_file():
        raise ConvertError(f"{path}: no such file; works: the folder that PEFT's save_pretrained wrote")
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConvertError(f"{path} is not JSON: {error}") from None
    if not isinstance(tree, dict):
        raise ConvertError(f"{path} is not an adapter's configuration")
    problems = [f"{path}: {name} must be {kind}, not {json.dumps(value)}" for name, kind, value in _misnumbered(tree)]
    if problems:
        raise ConvertError(problems)
    return tree


def _misnumbered(tree: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Yield (name, what it must be, value) of each rank and alpha that is not one."""
    for patterns, default, kind in (
        ("rank_pattern", "r", "a whole number above 0"),
        ("alpha_pattern", "lora_alpha", "a finite number"),
    ):
        each = tree.get(patterns) or {}
        if not isinstance(each, dict):
            yield patterns, "a mapping of names to numbers", each
            continue
        given = {default: tree[default]} if default in tree else {}
        for name, value in {**given, **{f"{patterns}: {key}": value for key, value in each.items()}}.items():
            is_whole = type(value) is int and value > 0
            is_finite = type(value) in (int, float) and math.isfinite(value)
            if not (is_whole if default == "r" else is_finite):
                yield name, kind, value


def weights_file(folder: Path) -> Path:
    """Return the file of an adapter's factors.

    Raises:
        ConvertError: there is none in safetensors format.
    """
    path = folder / WEIGHTS
    if path.is_file():
        return path
    if (folder / "adapter_model.bin").is_file():
        raise ConvertError(f"{folder}: pickled weights (adapter_model.bin) are not read; works: save as safetensors")
    raise ConvertError(f"{path}: no such file")


def refusals(folder: Path, config: Mapping[str, Any]) -> list[str]:
    """Return why an adapter is not plain LoRA: unsupported features that its configuration enables."""
    path = folder / CONFIG
    if config.get("peft_type") != "LORA":
        return [f"{path}: peft_type {config.get('peft_type')!r}; works: LORA"]
    found = [f"{path}: {name}: {why}" for name, why in _REFUSED.items() if config.get(name)]
    start = config.get("init_lora_weights")
    if isinstance(start, str) and start.lower().startswith(_OTHER_START):
        found.append(
            f"{path}: init_lora_weights {start!r}: the model's own weights were changed at the start;"
            " works: save with path_initial_model_for_weight_conversion"
        )
    return found


def _sorted(slots: Iterable[Slot]) -> tuple[dict[str, dict[str, Slot]], list[Slot]]:
    pairs: dict[str, dict[str, Slot]] = {}
    others = []
    for slot in slots:
        match = _FACTOR.fullmatch(slot.name)
        if match is None:
            others.append(slot)
            continue
        key = match["of"] or f"embedding {match['table']}"
        pairs.setdefault(match["module"].removeprefix(_PREFIX), {})[key] = slot
    return pairs, others


def _factors(
    folder: Path,
    config: Mapping[str, Any],
    module: str,
    pair: Mapping[str, Slot],
    base: _Base,
    problems: list[str],
) -> Iterator[Factors]:
    table = "embedding A" in pair or "embedding B" in pair
    a, b = (pair.get(f"embedding {of}" if table else of) for of in "AB")
    if a is None or b is None:
        problems.append(f"{folder / WEIGHTS}: {module} has lora_{'B' if a is None else 'A'} without the other factor")
        return
    weight = base.weight(f"{module}.weight")
    if weight is not None:
        names = f"{module}{_ENDS['A']}", f"{module}{_ENDS['B']}"
        one = _one(config, module, weight, held_whole(names[0], a), held_whole(names[1], b), problems, table=table)
        yield from one
        return
    parts = [] if table else list(_fused(module, a, b, base))
    if not parts:
        problems.append(f"{module}: the adapter changes it, and the model has no {module}.weight")
    for name, held, left, right in parts:
        yield from _one(config, name, held, left, right, problems)


def _fused(module: str, a: Slot, b: Slot, base: _Base) -> Iterator[tuple[str, Held, Held, Held]]:
    """Yield each expert's weight and its part of the factors of a parameter that fuses all experts."""
    places = base.places()
    if base.logical is None:
        return
    names = {of: f"{module}{end}" for of, end in _ENDS.items()}
    shapes = {names["A"]: a.shape, names["B"]: b.shape}
    left, right = (fused_boxes(base.logical, names[of], shapes) for of in "AB")
    if left is None or right is None:
        return
    name = left[0]
    for one, other in zip(left[1], right[1], strict=True):
        weight = places[one.logical.removesuffix(_ENDS["A"]) + ".weight"]
        yield name, weight, Held(slot=a, box=one), Held(slot=b, box=other)


def _one(
    config: Mapping[str, Any], name: str, weight: Held, a: Held, b: Held, problems: list[str], *, table: bool = False
) -> Iterator[Factors]:
    rank = pattern_value(config, "rank_pattern", "r", name)
    alpha = pattern_value(config, "alpha_pattern", "lora_alpha", name)
    shape = weight.shape
    rows, columns = (shape[1], shape[0]) if table else (shape[0], shape[-1])
    expected = ([rank, columns], [rows, rank])
    if (list(a.shape), list(b.shape)) != expected:
        problems.append(
            f"{name}: factors {list(a.shape)} and {list(b.shape)}; its weight {list(shape)} and rank {rank}"
            f" of {CONFIG} need {expected[0]} and {expected[1]}"
        )
        return
    wrong = [one.slot for one in (weight, a, b) if one.slot.dtype not in FLOATS or one.slot.dtype == "F8_E4M3"]
    if wrong:
        problems.append(
            f"{wrong[0].path.name}: {wrong[0].name} is {wrong[0].dtype}; works: a model in bf16, fp16, fp32"
            " (launch convert reshard --format hf --dtype bf16)"
        )
        return
    scale = alpha / math.sqrt(rank) if config.get("use_rslora") else alpha / rank
    yield Factors(weight=weight, a=a, b=b, scale=scale, table=table)


def pattern_value(config: Mapping[str, Any], patterns: str, default: str, module: str) -> Any:
    """Return a module's value: that of the first pattern matching the end of its name (peft 0.20.0 utils/other.py)."""
    for pattern, value in (config.get(patterns) or {}).items():
        if re.match(rf"(.*\.)?({pattern})$", module):
            return value
    return config.get(default)


def _replaced(folder: Path, others: Iterable[Slot], base: _Base, problems: list[str]) -> dict[str, Slot]:
    found = {}
    for slot in others:
        name = slot.name.removeprefix(_PREFIX).replace(".modules_to_save.", ".").replace(".base_layer.", ".")
        name = name if name in base.slots else base.usual(name)
        old = base.slots.get(name)
        if old is None:
            problems.append(f"{folder / WEIGHTS}: {slot.name}: neither a LoRA factor nor a tensor of the model")
        elif old.shape != slot.shape:
            problems.append(f"{name}: the adapter has {list(slot.shape)}, the model {list(old.shape)}")
        else:
            found[name] = slot
    return found
