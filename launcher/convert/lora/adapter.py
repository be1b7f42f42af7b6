"""Reads a PEFT LoRA adapter: its configuration, and which of the model's tensors each pair of factors changes."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from launcher.convert.casts import FLOATS
from launcher.convert.containers import safetensors
from launcher.convert.errors import ConvertError
from launcher.convert.records import Slot

CONFIG: Final = "adapter_config.json"
WEIGHTS: Final = "adapter_model.safetensors"
_PREFIX: Final = "base_model.model."
_FACTOR: Final = re.compile(r"(?P<module>.+)\.(?:lora_(?P<of>[AB])\.weight|lora_embedding_(?P<table>[AB]))")
# Fields that change what is computed, and why merging is refused where they are set.
_REFUSED: Final = {
    "use_dora": "DoRA scales each row by its norm, which depends on the number format of the training",
    "target_parameters": "factors of whole parameters (fused experts) have no module to be merged into",
    "layer_replication": "its layers are copies that the model's config.json does not have",
    "lora_bias": "factors with a bias",
    "use_qalora": "quantised factors",
    "use_bdlora": "block-diagonal factors",
    "alora_invocation_tokens": "activated LoRA works on some tokens only: no weights do the same",
    "trainable_token_indices": "it changes single rows of the embedding",
    "arrow_config": "a router chooses among adapters: no weights do the same",
    "fan_in_fan_out": "transposed weights, which no model that is converted here has",
}
# PEFT changes the model's own weights when it starts such an adapter; the adapter is the difference to those.
_OTHER_START: Final = ("pissa", "olora", "corda", "loftq", "lora_ga")


@dataclass(frozen=True, slots=True, kw_only=True)
class Factors:
    """weight + scale * B @ A.

    Attributes:
        weight: name of the model's tensor.
        a, b: where A [rank, in] and B [out, rank] lie.
        scale: alpha / rank, or alpha / sqrt(rank).
        table: the tensor is an embedding: A is [rank, rows], B is [width, rank], and the product is transposed.
    """

    weight: str
    a: Slot
    b: Slot
    scale: float
    table: bool = False

    @property
    def rank(self) -> int:
        """Rows of A."""
        return self.a.shape[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """A LoRA adapter, tied to the tensors of one model.

    Attributes:
        factors: tensor to what is added to it.
        replaced: tensor to what stands in its place (modules_to_save, trained biases).
    """

    folder: Path
    factors: Mapping[str, Factors]
    replaced: Mapping[str, Slot]


def read_adapter(folder: Path, model: Iterable[Slot], *, tied: bool) -> Adapter:
    """Read an adapter and find the tensors of the model that it changes.

    Args:
        folder: of adapter_config.json and adapter_model.safetensors.
        model: the model's tensors.
        tied: output layer and embedding are one tensor.

    Raises:
        ConvertError: every reason for which it cannot be merged, at once.
    """
    config = _config(folder)
    problems = _refusals(folder, config)
    if problems:
        raise ConvertError(problems)
    stored = {slot.name: slot for slot in safetensors.read(_weights(folder)).slots}
    base = {slot.name: slot for slot in model}
    pairs, others = _sorted(stored.values())
    factors = {}
    for module, pair in pairs.items():
        found = _factors(folder, config, module, pair, base, problems)
        if found is not None:
            factors[found.weight] = found
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
    return Adapter(folder=folder, factors=factors, replaced=replaced)


def _config(folder: Path) -> Mapping[str, Any]:
    path = folder / CONFIG
    if not path.is_file():
        raise ConvertError(f"{path}: no such file; works: the folder that PEFT's save_pretrained wrote")
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConvertError(f"{path} is not JSON: {error}") from None
    if not isinstance(tree, dict):
        raise ConvertError(f"{path} is not an adapter's configuration")
    return tree


def _weights(folder: Path) -> Path:
    path = folder / WEIGHTS
    if path.is_file():
        return path
    if (folder / "adapter_model.bin").is_file():
        raise ConvertError(f"{folder}: pickled weights (adapter_model.bin) are not read; works: save as safetensors")
    raise ConvertError(f"{path}: no such file")


def _refusals(folder: Path, config: Mapping[str, Any]) -> list[str]:
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
    base: Mapping[str, Slot],
    problems: list[str],
) -> Factors | None:
    table = "embedding A" in pair or "embedding B" in pair
    a, b = (pair.get(f"embedding {of}" if table else of) for of in "AB")
    if a is None or b is None:
        problems.append(f"{folder / WEIGHTS}: {module} has lora_{'B' if a is None else 'A'} without the other factor")
        return None
    weight = base.get(f"{module}.weight")
    if weight is None:
        problems.append(f"{module}: the adapter changes it, and the model has no {module}.weight")
        return None
    rank = _of(config, "rank_pattern", "r", module)
    alpha = _of(config, "alpha_pattern", "lora_alpha", module)
    rows, columns = (weight.shape[1], weight.shape[0]) if table else (weight.shape[0], weight.shape[-1])
    expected = ([rank, columns], [rows, rank])
    if (list(a.shape), list(b.shape)) != expected:
        problems.append(
            f"{module}: factors {list(a.shape)} and {list(b.shape)}; its weight {list(weight.shape)} and rank {rank}"
            f" of {CONFIG} need {expected[0]} and {expected[1]}"
        )
        return None
    wrong = [slot for slot in (weight, a, b) if slot.dtype not in FLOATS or slot.dtype == "F8_E4M3"]
    if wrong:
        problems.append(
            f"{wrong[0].path.name}: {wrong[0].name} is {wrong[0].dtype}; works: a model in bf16, fp16, fp32"
        )
        return None
    scale = alpha / math.sqrt(rank) if config.get("use_rslora") else alpha / rank
    return Factors(weight=weight.name, a=a, b=b, scale=scale, table=table)


def _of(config: Mapping[str, Any], patterns: str, default: str, module: str) -> Any:
    """The value for a module: that of the first pattern that its name ends with (peft utils/other.py, 0.20.0)."""
    for pattern, value in (config.get(patterns) or {}).items():
        if re.match(rf"(.*\.)?({pattern})$", module):
            return value
    return config.get(default)


def _replaced(folder: Path, others: Iterable[Slot], base: Mapping[str, Slot], problems: list[str]) -> dict[str, Slot]:
    found = {}
    for slot in others:
        name = slot.name.removeprefix(_PREFIX).replace(".modules_to_save.", ".").replace(".base_layer.", ".")
        old = base.get(name)
        if old is None:
            problems.append(f"{folder / WEIGHTS}: {slot.name}: neither a LoRA factor nor a tensor of the model")
        elif old.shape != slot.shape:
            problems.append(f"{name}: the adapter has {list(slot.shape)}, the model {list(old.shape)}")
        else:
            found[name] = slot
    return found
