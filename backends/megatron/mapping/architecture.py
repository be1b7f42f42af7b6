"""Architecture fields that differ from the model's config.json: options up to 3.x, ModelConfig keys since 4.3."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from backends.megatron.mapping.factories import THREE
from backends.megatron.mapping.model import overridden
from backends.megatron.mapping.options import megatron_name
from backends.megatron.versions import catalogue
from launcher.catalogue.versions import in_range
from launcher.families.layer_pattern import describe, expand, pattern
from launcher.job import Job, Value
from launcher.mapping.rows import NativeView, Row, Unsupported


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One architecture field in Megatron's terms.

    Attributes:
        field: canonical field below `model`.
        option: option up to 3.12, or argument of Megatron-LM where a version of 3.x lacks the option.
        key: field of mcore-bridge's ModelConfig (mcore_bridge/config/model_config.py @1.6.5).
        negated: the native value is the opposite.
        key_as_is: the ModelConfig field takes the canonical value, although the option takes another.
        whole: a whole number is written as one.
        neutral: value that is not written, of a field that config.json never sets; other values are always written.
    """

    field: str
    option: str
    key: str
    negated: bool = False
    key_as_is: bool = False
    whole: bool = False
    neutral: Value = None

    def forward(self, value: Any) -> Value:
        """Return the native value."""
        if self.negated:
            return not value
        return int(value) if self.whole and value == int(value) else value

    def backward(self, value: Any) -> Value:
        """Return the canonical value."""
        if self.negated:
            return not value
        return float(value) if self.whole else value


def _shape(field: str, option: str = "", key: str = "", **others: Any) -> Shape:
    """Return a field whose option is Megatron-LM's argument, and whose key is the option, unless named."""
    option = option or megatron_name(f"model.{field}")
    return Shape(field=field, option=option, key=key or option, **others)


SHAPES = (
    _shape("num_hidden_layers"),
    _shape("hidden_size"),
    _shape("intermediate_size"),
    _shape("num_attention_heads"),
    _shape("num_key_value_heads", "num_query_groups"),
    _shape("head_dim"),
    _shape("max_position_embeddings"),
    _shape("normalization"),
    _shape("rms_norm_eps", key="layernorm_epsilon"),
    _shape("tie_word_embeddings", negated=True),
    _shape("attention_bias", "add_qkv_bias"),
    _shape("linear_bias", key="add_bias_linear", negated=True, key_as_is=True),
    _shape("qk_layernorm"),
    _shape("attention_dropout"),
    _shape("hidden_dropout", neutral=0.0),
    _shape("position_embedding"),
    _shape("rope_theta", whole=True),
    _shape("num_experts", key="num_moe_experts"),
    _shape("num_experts_per_tok"),
    _shape("moe_intermediate_size"),
    _shape("shared_expert_intermediate_size"),
    _shape("norm_topk_prob", "moe_router_pre_softmax", negated=True),
    _shape("partial_rotary_factor", "partial_rotary_factor"),
    _shape("shared_expert_gate", "use_shared_expert_gate", key="moe_shared_expert_gate"),
    _shape("scoring_func", "moe_router_score_function"),
    _shape("router_expert_bias"),
    _shape("routed_scaling_factor"),
    _shape("q_lora_rank"),
    _shape("kv_lora_rank", "kv_lora_rank"),
    _shape("qk_nope_head_dim"),
    _shape("qk_rope_head_dim"),
    _shape("n_group"),
    _shape("topk_group", "moe_router_group_topk"),
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
    shapes = tuple(shape for shape in SHAPES if has_option(shape.option, version))
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


def has_option(name: str, version: str) -> bool:
    """Return whether a version of 3.x has an option of this name."""
    return in_range(version, None, THREE) and catalogue(version).get(name) is not None


def _option(shape: Shape, version: str) -> Row:
    path = f"model.{shape.field}"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        for written, value in shape_values(job, version):
            if written is shape:
                yield shape.option, shape.forward(value)

    def read(view: NativeView) -> Mapping[str, Value]:
        return {path: shape.backward(view.take(shape.option))} if view.has(shape.option) else {}

    return Row(fields=(path,), flags=(shape.option,), emit=emit, read=read, until=THREE)


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
        if not has_option(shape.option, version)
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
