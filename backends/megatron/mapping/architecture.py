"""Architecture fields that differ from the model's config.json: options up to 3.x, ModelConfig keys since 4.3."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from backends.megatron.mapping.factories import THREE
from backends.megatron.mapping.model import overridden
from launcher.catalogue.versions import in_range
from launcher.families.layer_pattern import describe, expand, pattern
from launcher.job import Job, Value
from launcher.mapping.rows import NativeView, Row, Unsupported


def _plain(value: Any) -> Value:
    return value


def _not(value: Any) -> Value:
    return not value


def _whole(value: float) -> Value:
    return int(value) if value == int(value) else value


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One architecture field in Megatron's terms.

    Attributes:
        field: canonical field below `model`.
        option: option up to 3.12 (and argument of Megatron-LM 0.12, where `since` is later than the version).
        key: field of mcore-bridge's ModelConfig (mcore_bridge/config/model_config.py @1.6.5).
        forward, backward: canonical to native value and back.
        key_as_is: the ModelConfig field takes the canonical value, although the option takes another.
        since: first version with the option.
        neutral: value that is not written, of a field that config.json never sets; other values are always written.
    """

    field: str
    option: str
    key: str
    forward: Callable[[Any], Value] = _plain
    backward: Callable[[Any], Value] = _plain
    key_as_is: bool = False
    since: str | None = None
    neutral: Value = None


SHAPES = (
    Shape(field="num_hidden_layers", option="num_layers", key="num_layers"),
    Shape(field="hidden_size", option="hidden_size", key="hidden_size"),
    Shape(field="intermediate_size", option="ffn_hidden_size", key="ffn_hidden_size"),
    Shape(field="num_attention_heads", option="num_attention_heads", key="num_attention_heads"),
    Shape(field="num_key_value_heads", option="num_query_groups", key="num_query_groups"),
    Shape(field="head_dim", option="kv_channels", key="kv_channels"),
    Shape(field="max_position_embeddings", option="max_position_embeddings", key="max_position_embeddings"),
    Shape(field="normalization", option="normalization", key="normalization"),
    Shape(field="rms_norm_eps", option="norm_epsilon", key="layernorm_epsilon"),
    Shape(
        field="tie_word_embeddings",
        option="untie_embeddings_and_output_weights",
        key="untie_embeddings_and_output_weights",
        forward=_not,
        backward=_not,
    ),
    Shape(field="attention_bias", option="add_qkv_bias", key="add_qkv_bias"),
    Shape(
        field="linear_bias",
        option="disable_bias_linear",
        key="add_bias_linear",
        forward=_not,
        backward=_not,
        key_as_is=True,
    ),
    Shape(field="qk_layernorm", option="qk_layernorm", key="qk_layernorm"),
    Shape(field="attention_dropout", option="attention_dropout", key="attention_dropout"),
    Shape(field="hidden_dropout", option="hidden_dropout", key="hidden_dropout", neutral=0.0),
    Shape(field="position_embedding", option="position_embedding_type", key="position_embedding_type"),
    Shape(field="rope_theta", option="rotary_base", key="rotary_base", forward=_whole, backward=float),
    Shape(field="num_experts", option="num_experts", key="num_moe_experts"),
    Shape(field="num_experts_per_tok", option="moe_router_topk", key="moe_router_topk"),
    Shape(field="moe_intermediate_size", option="moe_ffn_hidden_size", key="moe_ffn_hidden_size"),
    Shape(
        field="shared_expert_intermediate_size",
        option="moe_shared_expert_intermediate_size",
        key="moe_shared_expert_intermediate_size",
    ),
    Shape(
        field="norm_topk_prob",
        option="moe_router_pre_softmax",
        key="moe_router_pre_softmax",
        forward=_not,
        backward=_not,
    ),
    Shape(field="partial_rotary_factor", option="partial_rotary_factor", key="partial_rotary_factor", since="3.6"),
    Shape(field="shared_expert_gate", option="use_shared_expert_gate", key="moe_shared_expert_gate", since="3.6"),
    Shape(field="scoring_func", option="moe_router_score_function", key="moe_router_score_function", since="3.6"),
    Shape(
        field="router_expert_bias",
        option="moe_router_enable_expert_bias",
        key="moe_router_enable_expert_bias",
        since="3.6",
    ),
    Shape(
        field="routed_scaling_factor",
        option="moe_router_topk_scaling_factor",
        key="moe_router_topk_scaling_factor",
        since="3.6",
    ),
    Shape(field="q_lora_rank", option="q_lora_rank", key="q_lora_rank", since="3.6"),
    Shape(field="kv_lora_rank", option="kv_lora_rank", key="kv_lora_rank", since="3.6"),
    Shape(field="qk_nope_head_dim", option="qk_head_dim", key="qk_head_dim", since="3.6"),
    Shape(field="qk_rope_head_dim", option="qk_pos_emb_head_dim", key="qk_pos_emb_head_dim", since="3.6"),
    Shape(field="n_group", option="moe_router_num_groups", key="moe_router_num_groups", since="3.7"),
    Shape(field="topk_group", option="moe_router_group_topk", key="moe_router_group_topk", since="3.7"),
)


def shape_values(job: Job, version: str) -> Iterable[tuple[Shape, Value]]:
    """Yield the fields that must be written, with their canonical values.

    Raises:
        Unsupported: a field that config.json sets was set to null.
    """
    changed = overridden(job, version)
    for shape in SHAPES:
        value = getattr(job.model, shape.field)
        if shape.field not in changed and (shape.neutral is None or value == shape.neutral):
            continue
        if value is None:
            raise Unsupported(f"model.{shape.field}", "the value of config.json cannot be taken away by an argument")
        yield shape, value


def option_rows(version: str) -> tuple[Row, ...]:
    """Return one row for each option of the 3.x line, and one that reads which of them were given."""
    shapes = tuple(shape for shape in SHAPES if _has_option(shape, version))
    return (*(_option(shape, version) for shape in shapes), _given(shapes))


def weights_row() -> Row:
    """Return the row that rejects expert weightings that Megatron-core does not compute.

    Sigmoid scores of several experts are divided by their sum, that of a single one is not, whatever
    moe_router_pre_softmax is (megatron/core/transformer/moe/moe_utils.py:724 @core_v0.16.1).
    """
    path = "model.norm_topk_prob"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        single = job.model.num_experts_per_tok == 1
        if job.model.scoring_func == "sigmoid" and job.model.norm_topk_prob == single:
            why = "sigmoid scores of several experts are always normalised to one, that of a single expert never"
            raise Unsupported(path, why, (f"{path}={str(not single).lower()}",))
        return ()

    fields = (path, "model.scoring_func", "model.num_experts_per_tok")
    return Row(fields=fields, flags=(), emit=emit, when=lambda job: job.model.is_moe)


def _has_option(shape: Shape, version: str) -> bool:
    return in_range(version, shape.since, THREE)


def _option(shape: Shape, version: str) -> Row:
    path = f"model.{shape.field}"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        for written, value in shape_values(job, version):
            if written is shape:
                yield shape.option, shape.forward(value)

    def read(view: NativeView) -> Mapping[str, Value]:
        return {path: shape.backward(view.take(shape.option))} if view.has(shape.option) else {}

    return Row(fields=(path,), flags=(shape.option,), emit=emit, read=read, since=shape.since, until=THREE)


def _given(shapes: tuple[Shape, ...]) -> Row:
    def read(view: NativeView) -> Mapping[str, Value]:
        given = tuple(shape.field for shape in shapes if view.peek(shape.option) is not None and shape.neutral is None)
        return {"model.overridden": given} if given else {}

    return Row(fields=("model.overridden",), flags=(), emit=lambda job: (), read=read, until=THREE)


def as_keys(job: Job, version: str) -> dict[str, Value]:
    """Return the values for ModelConfig, by field name."""
    return {
        shape.key: value if shape.key_as_is else shape.forward(value) for shape, value in shape_values(job, version)
    }


def as_megatron(job: Job, version: str) -> dict[str, Value]:
    """Return the values without an option in this version, as Megatron-LM arguments."""
    return {
        shape.option: shape.forward(value)
        for shape, value in shape_values(job, version)
        if not _has_option(shape, version)
    }


def take_keys(given: dict[str, Value]) -> dict[str, Value]:
    """Take the known ModelConfig fields out of `given` and return them as canonical values."""
    found: dict[str, Value] = {}
    changed = []
    for shape in SHAPES:
        if shape.key in given:
            value = given.pop(shape.key)
            found[f"model.{shape.field}"] = value if shape.key_as_is else shape.backward(value)
            if shape.neutral is None:
                changed.append(shape.field)
    if changed:
        found["model.overridden"] = tuple(changed)
    return found


def layer_pattern(job: Job) -> str | None:
    """Return the pattern of MoE layers in Megatron's syntax; None for dense models and where all layers are MoE."""
    model = job.model
    if not model.is_moe or (model.first_k_dense_replace == 0 and model.moe_layer_freq == 1):
        return None
    layers, dense = model.num_hidden_layers, model.first_k_dense_replace
    if layers is None or dense >= layers:
        raise Unsupported("model.first_k_dense_replace", "the pattern of layers needs more layers than dense ones")
    return pattern(layers, dense, model.moe_layer_freq)


def expert_places(given: Value, layers: Value) -> tuple[int, int] | None:
    """Return --moe_layer_freq as (dense layers at the start, MoE layer every n); None for other patterns.

    None also for a value that means every layer: it is passed through, else config.json's pattern would replace it.
    """
    text = str(given)
    found = (0, int(text)) if text.isdigit() and int(text) else describe(expand(text) or [])
    if found in (None, (0, 1)) or (not text.isdigit() and len(expand(text) or ()) != layers):
        return None
    return found
