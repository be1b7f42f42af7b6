"""Where the implementations compute the same: module names of Megatron-core and of transformers, in forward order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Traced = Mapping[str, Mapping[str, Any]]
"""Module name to `inputs`, `outputs` and `gradient`, as launcher/rehearse/cpu/tracer.py records them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One tensor of a module.

    Attributes:
        module: name below the model; `{}` is the layer's number.
        kind: `inputs` or `outputs`.
        index: which of them.
    """

    module: str
    kind: str = "outputs"
    index: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A point of the forward pass.

    Attributes:
        name: for people; `{}` is the layer's number, counted from 0.
        megatron, transformers: the tensor there; None: this implementation has no such module.
        share: the part of Megatron-core's fused query, key and value tensor; "" for the whole tensor.
    """

    name: str
    megatron: Part
    transformers: Part | None
    share: str = ""


def _pair(name: str, megatron: str, transformers: str | None) -> Stage:
    theirs = None if transformers is None else Part(module=transformers)
    return Stage(name=name, megatron=Part(module=megatron), transformers=theirs)


_LAYER, _MODEL = "decoder.layers.{}", "model.layers.{}"
_ATTENTION, _SELF = f"{_LAYER}.self_attention", f"{_MODEL}.self_attn"


def _shares() -> Sequence[Stage]:
    return tuple(
        Stage(
            name=f"layer {{}}: {name} projection",
            megatron=Part(module=f"{_ATTENTION}.linear_qkv"),
            transformers=Part(module=f"{_SELF}.{name[0]}_proj"),
            share=name,
        )
        for name in ("query", "key", "value")
    )


def _attended() -> Sequence[Stage]:
    names = ("query after the rotary embedding", "key after the rotary embedding", "value")
    return tuple(
        Stage(
            name=f"layer {{}}: {name}",
            megatron=Part(module=f"{_ATTENTION}.core_attention", kind="inputs", index=index),
            transformers=None,
        )
        for index, name in enumerate(names)
    )


FIRST = (
    Stage(
        name="tokens",
        megatron=Part(module="embedding.word_embeddings", kind="inputs"),
        transformers=Part(module="model.embed_tokens", kind="inputs"),
    ),
    _pair("embedding", "embedding.word_embeddings", "model.embed_tokens"),
)
EACH_LAYER = (
    _pair("layer {}: norm before attention", f"{_LAYER}.input_layernorm", f"{_MODEL}.input_layernorm"),
    *_shares(),
    _pair("layer {}: latent query", f"{_ATTENTION}.linear_q_down_proj", f"{_SELF}.q_a_proj"),
    _pair("layer {}: query projection", f"{_ATTENTION}.linear_q_up_proj", f"{_SELF}.q_b_proj"),
    _pair("layer {}: latent key and value", f"{_ATTENTION}.linear_kv_down_proj", f"{_SELF}.kv_a_proj_with_mqa"),
    _pair("layer {}: key and value projection", f"{_ATTENTION}.linear_kv_up_proj", f"{_SELF}.kv_b_proj"),
    _pair("layer {}: query norm", f"{_ATTENTION}.q_layernorm", f"{_SELF}.q_norm"),
    _pair("layer {}: key norm", f"{_ATTENTION}.k_layernorm", f"{_SELF}.k_norm"),
    *_attended(),
    Stage(
        name="layer {}: attention before the output projection",
        megatron=Part(module=f"{_ATTENTION}.linear_proj", kind="inputs"),
        transformers=Part(module=f"{_SELF}.o_proj", kind="inputs"),
    ),
    _pair("layer {}: attention", f"{_ATTENTION}.linear_proj", f"{_SELF}.o_proj"),
    _pair("layer {}: norm before the MLP", f"{_LAYER}.pre_mlp_layernorm", f"{_MODEL}.post_attention_layernorm"),
    _pair("layer {}: router", f"{_LAYER}.mlp.router", None),
    _pair("layer {}: MLP", f"{_LAYER}.mlp", f"{_MODEL}.mlp"),
    _pair("layer {}: output", _LAYER, _MODEL),
)
LAST = (
    _pair("final norm", "decoder.final_layernorm", "model.norm"),
    _pair("logits", "output_layer", "lm_head"),
)


def stages(layers: int) -> list[Stage]:
    """Return the stages of a model in forward order, with the layers' numbers filled in."""
    found = list(FIRST)
    for number in range(layers):
        found += [_numbered(stage, number) for stage in EACH_LAYER]
    return [*found, *LAST]


def _numbered(stage: Stage, number: int) -> Stage:
    def filled(part: Part) -> Part:
        return Part(module=part.module.format(number), kind=part.kind, index=part.index)

    return Stage(
        name=stage.name.format(number),
        megatron=filled(stage.megatron),
        transformers=None if stage.transformers is None else filled(stage.transformers),
        share=stage.share,
    )


def value_of(traced: Traced, stage: Stage, *, gradient: bool, heads: tuple[int, int]) -> Any:
    """Return the tensor of a stage, [tokens, …], or its gradient; None where it was not recorded.

    A module that returns its input (Transformer Engine computes that norm inside the next layer) has no stage.

    Args:
        heads: attention heads and key-value heads of the model.
    """
    is_transformers = "lm_head" in traced
    part = stage.transformers if is_transformers else stage.megatron
    found = None if part is None else _module(traced, part.module)
    if part is None or found is None or _is_identity(found):
        return None
    if gradient:
        tensor = found["gradient"] if part.kind == "outputs" and part.index == 0 else None
    else:
        tensor = found[part.kind][part.index] if len(found[part.kind]) > part.index else None
    if tensor is None:
        return None
    if stage.share and not is_transformers:
        tensor = _shared(tensor, stage.share, *heads)
    return tensor.reshape(_tokens(traced), -1)


def _module(traced: Traced, name: str) -> Mapping[str, Any] | None:
    """Return a module by its name below the model, whatever wraps the model."""
    return next((found for key, found in traced.items() if f".{key}".endswith(f".{name}")), None)


def _tokens(traced: Traced) -> int:
    found = _module(traced, "embedding.word_embeddings") or _module(traced, "model.embed_tokens")
    assert found is not None
    return int(found["inputs"][0].numel())


def _is_identity(found: Mapping[str, Any]) -> bool:
    first, last = found["inputs"][:1], found["outputs"][:1]
    return bool(first and last and first[0].shape == last[0].shape and (first[0] == last[0]).all())


def _shared(tensor: Any, share: str, heads: int, groups: int) -> Any:
    """Return query, key or value of the output of linear_qkv, whose heads stand group by group.

    Source: megatron/core/transformer/attention.py, SelfAttention.get_query_key_value_tensors.
    """
    each = heads // groups
    parts = tensor.reshape(-1, groups, each + 2, tensor.shape[-1] // (groups * (each + 2)))
    first, last = {"query": (0, each), "key": (each, each + 1), "value": (each + 1, each + 2)}[share]
    return parts[:, :, first:last]
