"""Where the implementations compute the same: module names of Megatron-core and of transformers, in forward order."""

from collections.abc import Sequence
from dataclasses import dataclass


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
        concerns: fields of the job that decide what is computed there.
    """

    name: str
    megatron: Part
    transformers: Part | None
    share: str = ""
    concerns: tuple[str, ...] = ()


_EMBEDDING = ("model.vocab_size", "model.tie_word_embeddings", "model.position_embedding")
_NORM = ("model.normalization", "model.rms_norm_eps", "model.norm_zero_centered", "kernels.rmsnorm_fusion")
_HEADS = ("model.num_attention_heads", "model.num_key_value_heads", "model.head_dim", "model.attention_bias")
_LATENT = (
    *("model.num_attention_heads", "model.q_lora_rank", "model.kv_lora_rank", "model.qk_nope_head_dim"),
    *("model.qk_rope_head_dim", "model.v_head_dim"),
)
_QK_NORM = ("model.qk_layernorm", "model.normalization", "model.rms_norm_eps")
_ROTARY = (
    *("model.position_embedding", "model.rope_theta", "model.partial_rotary_factor", "model.rotary_interleaved"),
    *("model.rope_scaling.type", "model.rope_scaling.factor", "model.max_position_embeddings", "kernels.rope_fusion"),
)
_ATTENDS = (
    *("kernels.attention_backend", "kernels.attention_mask", "kernels.sparse_mode", "kernels.masked_softmax_fusion"),
    *("precision.attention_softmax_in_fp32", "model.sliding_window", "model.attention_dropout"),
)
_ROUTER = (
    *("model.num_experts", "model.num_experts_per_tok", "model.scoring_func", "model.norm_topk_prob"),
    *("model.router_expert_bias", "model.n_group", "model.topk_group", "model.routed_scaling_factor"),
    *("moe.router_dtype", "moe.capacity_factor", "moe.token_drop_policy", "moe.pad_to_capacity"),
)
_MLP = (
    *("model.hidden_act", "model.intermediate_size", "model.moe_intermediate_size", "moe.grouped_gemm"),
    *("model.shared_expert_intermediate_size", "moe.token_dispatcher_type", "kernels.bias_activation_fusion"),
)
_LOSS = (
    *("kernels.cross_entropy_fusion", "kernels.cross_entropy_fusion_impl", "precision.calculate_per_token_loss"),
    *("data.eod_mask_loss", "task.type", "task.loss_type", "task.beta", "task.label_smoothing", "task.rpo_alpha"),
)


def _pair(name: str, megatron: str, transformers: str | None, concerns: tuple[str, ...]) -> Stage:
    theirs = None if transformers is None else Part(module=transformers)
    return Stage(name=name, megatron=Part(module=megatron), transformers=theirs, concerns=concerns)


_LAYER, _MODEL = "decoder.layers.{}", "model.layers.{}"
_ATTENTION, _SELF = f"{_LAYER}.self_attention", f"{_MODEL}.self_attn"


def _shares() -> Sequence[Stage]:
    return tuple(
        Stage(
            name=f"layer {{}}: {name} projection",
            megatron=Part(module=f"{_ATTENTION}.linear_qkv"),
            transformers=Part(module=f"{_SELF}.{name[0]}_proj"),
            share=name,
            concerns=_HEADS,
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
            concerns=_ROTARY,
        )
        for index, name in enumerate(names)
    )


TOKENS, LOSS = "tokens", "loss of each token"
FIRST = (
    Stage(
        name=TOKENS,
        megatron=Part(module="embedding.word_embeddings", kind="inputs"),
        transformers=Part(module="model.embed_tokens", kind="inputs"),
    ),
    _pair("embedding", "embedding.word_embeddings", "model.embed_tokens", _EMBEDDING),
)
EACH_LAYER = (
    _pair("layer {}: norm before attention", f"{_LAYER}.input_layernorm", f"{_MODEL}.input_layernorm", _NORM),
    *_shares(),
    _pair("layer {}: latent query", f"{_ATTENTION}.linear_q_down_proj", f"{_SELF}.q_a_proj", _LATENT),
    _pair("layer {}: query projection", f"{_ATTENTION}.linear_q_up_proj", f"{_SELF}.q_b_proj", _LATENT),
    _pair(
        "layer {}: latent key and value",
        f"{_ATTENTION}.linear_kv_down_proj",
        f"{_SELF}.kv_a_proj_with_mqa",
        _LATENT,
    ),
    _pair("layer {}: key and value projection", f"{_ATTENTION}.linear_kv_up_proj", f"{_SELF}.kv_b_proj", _LATENT),
    _pair("layer {}: query norm", f"{_ATTENTION}.q_layernorm", f"{_SELF}.q_norm", _QK_NORM),
    _pair("layer {}: key norm", f"{_ATTENTION}.k_layernorm", f"{_SELF}.k_norm", _QK_NORM),
    *_attended(),
    Stage(
        name="layer {}: attention before the output projection",
        megatron=Part(module=f"{_ATTENTION}.linear_proj", kind="inputs"),
        transformers=Part(module=f"{_SELF}.o_proj", kind="inputs"),
        concerns=(*_ATTENDS, *_ROTARY),
    ),
    _pair("layer {}: attention", f"{_ATTENTION}.linear_proj", f"{_SELF}.o_proj", _ATTENDS),
    _pair("layer {}: norm before the MLP", f"{_LAYER}.pre_mlp_layernorm", f"{_MODEL}.post_attention_layernorm", _NORM),
    _pair("layer {}: router", f"{_LAYER}.mlp.router", None, _ROUTER),
    _pair("layer {}: MLP", f"{_LAYER}.mlp", f"{_MODEL}.mlp", (*_MLP, *_ROUTER)),
    _pair("layer {}: output", _LAYER, _MODEL, ("model.hidden_dropout", "kernels.bias_dropout_fusion")),
)
LAST = (
    _pair("final norm", "decoder.final_layernorm", "model.norm", _NORM),
    _pair("logits", "output_layer", "lm_head", ("model.tie_word_embeddings", "model.vocab_size")),
    # What transformers has of it is computed of its logits.
    _pair(LOSS, "", None, _LOSS),
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
        concerns=stage.concerns,
    )
