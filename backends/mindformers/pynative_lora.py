"""LoRA of a pynative `TrainConfig` as `pet_config` of the static graph.

The pynative trainer searches a regular expression in the path of every linear layer, and from 2.1 on of the routed
experts (pynative/pet/lora_adapter.py: build_lora_model @2.1.0). The static graph matches the name of a layer alone,
wherever it stands (pet/tuners/lora_adapter.py: recursive_replace_dense_cell @2.1.0).
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from backends.mindformers.class_defaults import CLASSES
from backends.mindformers.mapping.lora import FROZEN
from launcher.mapping.backend import FileNote

SECTION = "lora_config"
_TARGETS = f"{SECTION}.target_modules"
PET = "model.model_config.pet_config"
CONCATENATED = "model.model_config.mla_qkv_concat"
# Name in TrainConfig, name in pet_config, default (pynative/config/config.py: LoraConfig @2.1.0).
_NUMBERS = (("lora_rank", 8), ("lora_alpha", 16), ("lora_dropout", 0.0))
# Initial values that the static graph has, and no key for (tensor_parallel/lora_layers.py @2.1.0).
_INITIAL = (("lora_a_std", 0.01), ("lora_b_std", 0.0))

# Linear layers of one layer of the model (pynative/base_models/gpt/gpt_layer_specs.py, transformers/moe @2.1.0).
_ATTENTION = ("self_attention.linear_qkv", "self_attention.linear_proj")
_LATENT = ("self_attention.linear_qb", "self_attention.linear_kvb")
_DENSE = ("mlp.linear_fc1", "mlp.linear_fc2")
_SHARED = ("mlp.shared_experts.linear_fc1", "mlp.shared_experts.linear_fc2")
_EXPERTS = "mlp.experts"
_MLP = frozenset({"linear_fc1", "linear_fc2"})
_OUTSIDE = {
    "output_layer": "output_layer, which is outside of the layers that lora.target_modules names",
    "eh_proj": "eh_proj of MTP, which lora.target_modules does not name",
    "experts": "the routed experts, one grouped matrix that the static graph's LoRA does not adapt",
}


def linear_layers(model: Mapping[str, Any]) -> Iterator[str]:
    """Yield the paths of what LoRA can adapt in a model."""
    known = {**CLASSES.get(str(model.get("model_type")), {}), **model}
    experts = known.get("n_routed_experts") or known.get("num_experts")
    latent = bool(known.get("kv_lora_rank"))
    attention = (*_ATTENTION, *(_LATENT if latent and known.get("q_lora_rank") else _LATENT[1:] if latent else ()))
    sparse = (_EXPERTS, *(_SHARED if known.get("n_shared_experts") or known.get("shared_expert_num") else ()))
    layers, dense = _count(known.get("num_hidden_layers"), 1), _count(known.get("first_k_dense_replace"), 0)
    for layer in range(layers):
        mlp = _DENSE if not experts or layer < dense else sparse
        yield from (f"model.decoder.layers.{layer}.{name}" for name in (*attention, *mlp))
    for layer in range(_count(known.get("num_nextn_predict_layers") or known.get("mtp_num_layers"), 0)):
        prefix = f"model.mtp.layers.{layer}."
        mlp = sparse if experts else _DENSE
        yield from (f"{prefix}transformer_layer.{name}" for name in (*attention, *mlp))
        yield f"{prefix}eh_proj"
    yield "model.output_layer"


def _count(value: Any, default: int) -> int:
    return value if isinstance(value, int) and value >= 0 else default


def adapted(section: Mapping[str, Any], model: Mapping[str, Any]) -> dict[str, tuple[int, int]] | None:
    """Return by name how many linear layers are adapted, and of how many; None: no valid expressions."""
    try:
        target, exclude = (re.compile(section.get(name) or "") for name in ("target_modules", "exclude_layers"))
    except (re.error, TypeError):
        return None
    if not target.pattern.strip():
        return None
    found: dict[str, tuple[int, int]] = {}
    for path in linear_layers(model):
        parts = path.split(".")
        heads = (".".join(parts[: size + 1]) for size in range(len(parts)))
        left_out = bool(exclude.pattern) and any(exclude.search(head) for head in heads)
        before, of = found.get(parts[-1], (0, 0))
        found[parts[-1]] = (before + bool(not left_out and target.search(path)), of + 1)
    return {name: each for name, each in found.items() if each[0]}


def static_lora(section: Mapping[str, Any], model: Mapping[str, Any]) -> tuple[dict[str, Any], list[FileNote]]:
    """Return the static graph's arguments for LoRA, and what they do not keep."""
    found = adapted(section, model)
    if found is None:  # the version refuses it, which the notes of keys say
        return {}, []
    if not found:
        return {}, [FileNote(key=_TARGETS, text="matches no linear layer, which MindFormers refuses: LoRA is dropped")]
    has_experts = any(path.endswith(_EXPERTS) for path in linear_layers(model))
    named = [name for name in found if name not in _OUTSIDE and not (has_experts and name in _MLP)]
    # Something has to be adapted: without LoRA, all parameters would be trained.
    names = named or [name for name in found if name != "experts"] or list(found)
    settings = {name: section.get(name, default) for name, default in _NUMBERS}
    pet = {
        "pet_type": "lora",
        **settings,
        "lora_a_init": "normal",
        "lora_b_init": "zeros",
        "target_modules": "|".join(f".*{name}" for name in names),
        **FROZEN,
    }
    arguments: dict[str, Any] = {PET: pet}
    if any(path.endswith(_LATENT[1]) for path in linear_layers(model)):
        # The pynative model has no other layout, and one adapter on a concatenated matrix is not two on its parts.
        arguments[CONCATENATED] = True
    return arguments, [*_target_notes(found, names), *_initial_notes(section)]


def _target_notes(found: Mapping[str, tuple[int, int]], names: list[str]) -> Iterator[FileNote]:
    for name, (count, of) in found.items():
        if name == "experts" and name in names:
            text = (
                "adapts the routed experts alone, and the static graph's LoRA has no adapters for them: nothing trains"
            )
        elif name not in names and name in _OUTSIDE:
            text = f"adapts {_OUTSIDE[name]}: no adapters there"
        elif name not in names:
            text = (
                f"adapts {name} outside of the routed experts; lora.target_modules={name} means these, too, and the "
                "static graph cannot adapt them: no adapters there"
            )
        elif count < of:
            text = f"adapts {count} of {of} layers {name}; the static graph finds layers by name alone: all are adapted"
        else:
            continue
        yield FileNote(key=_TARGETS, text=text)


def _initial_notes(section: Mapping[str, Any]) -> Iterator[FileNote]:
    for name, default in _INITIAL:
        value = section.get(name, default)
        if value != default:
            text = f"{value} has no counterpart: adapters of the static graph start with a deviation of {default}"
            yield FileNote(key=f"{SECTION}.{name}", text=text)
