"""Architecture fields that differ from the model's config.json: options up to 3.x, ModelConfig keys since 4.3."""

from collections.abc import Iterable, Mapping
from typing import Any

from backends.megatron.mapping.factories import THREE
from backends.megatron.mapping.model import overridden
from backends.megatron.mapping.options import megatron_name
from backends.megatron.versions import catalogue
from launcher.catalogue.versions import in_range
from launcher.families.layer_pattern import describe, expert_pattern
from launcher.job import Job, Value
from launcher.list_expression import expand
from launcher.mapping.rows import NativeView, Row, Unsupported
from launcher.records import dataclass
from launcher.syntax import is_count


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelField:
    """One architecture field in Megatron's terms.

    Attributes:
        field: canonical field below `model`.
        option: option up to 3.12, or argument of Megatron-LM where a version of 3.x lacks the option.
        key: field of mcore-bridge's ModelConfig (mcore_bridge/config/model_config.py @1.6.5).
        negated: the native value is the opposite.
        key_as_is: the ModelConfig field takes the canonical value, although the option takes another.
        integer: a whole number is written as one.
        neutral: value that is not written, of a field that config.json never sets; other values are always written.
    """

    field: str
    option: str
    key: str
    negated: bool = False
    key_as_is: bool = False
    integer: bool = False
    neutral: Value = None

    def forward(self, value: Any) -> Value:
        """Return the native value."""
        if self.negated:
            return not value
        return int(value) if self.integer and value == int(value) else value

    def backward(self, value: Any) -> Value:
        """Return the canonical value."""
        if self.negated:
            return not value
        return float(value) if self.integer else value


def _model_field(field: str, option: str = "", key: str = "", **others: Any) -> ModelField:
    """Return a field whose option is Megatron-LM's argument, and whose key is the option, unless named."""
    option = option or megatron_name(f"model.{field}")
    return ModelField(field=field, option=option, key=key or option, **others)


MODEL_FIELDS = (
    _model_field("num_hidden_layers"),
    _model_field("hidden_size"),
    _model_field("intermediate_size"),
    _model_field("num_attention_heads"),
    _model_field("num_key_value_heads", "num_query_groups"),
    _model_field("head_dim"),
    _model_field("max_position_embeddings"),
    _model_field("normalization"),
    _model_field("rms_norm_eps", key="layernorm_epsilon"),
    _model_field("tie_word_embeddings", negated=True),
    _model_field("attention_bias", "add_qkv_bias"),
    _model_field("linear_bias", key="add_bias_linear", negated=True, key_as_is=True),
    _model_field("qk_layernorm"),
    _model_field("attention_dropout"),
    _model_field("hidden_dropout", neutral=0.0),
    _model_field("position_embedding"),
    _model_field("rope_theta", integer=True),
    _model_field("num_experts", key="num_moe_experts"),
    _model_field("num_experts_per_tok"),
    _model_field("moe_intermediate_size"),
    _model_field("shared_expert_intermediate_size"),
    _model_field("norm_topk_prob", "moe_router_pre_softmax", negated=True),
    _model_field("partial_rotary_factor", "partial_rotary_factor"),
    _model_field("shared_expert_gate", "use_shared_expert_gate", key="moe_shared_expert_gate"),
    _model_field("scoring_func", "moe_router_score_function"),
    _model_field("router_expert_bias"),
    _model_field("routed_scaling_factor"),
    _model_field("q_lora_rank"),
    _model_field("kv_lora_rank", "kv_lora_rank"),
    _model_field("qk_nope_head_dim"),
    _model_field("qk_rope_head_dim"),
    _model_field("n_group"),
    _model_field("topk_group", "moe_router_group_topk"),
)


def changed_fields(job: Job, version: str) -> Iterable[tuple[ModelField, Value]]:
    """Yield the fields that must be written, with their canonical values.

    Raises:
        Unsupported: a field that config.json sets was set to null.
    """
    changed = overridden(job, version)
    for model_field in MODEL_FIELDS:
        value = getattr(job.model, model_field.field)
        if model_field.field not in changed and (model_field.neutral is None or value == model_field.neutral):
            continue
        if value is None:
            raise Unsupported(
                f"model.{model_field.field}", "the value of config.json cannot be taken away by an argument"
            )
        yield model_field, value


def option_rows(version: str) -> tuple[Row, ...]:
    """Return one row for each option of the 3.x line, and one that reads which of them were given."""
    model_fields = tuple(model_field for model_field in MODEL_FIELDS if has_option(model_field.option, version))
    return (*(_option(model_field, version) for model_field in model_fields), _given(model_fields))


def weights_row() -> Row:
    """Return the row that rejects expert weightings that Megatron-core does not compute.

    Sigmoid scores of several experts are divided by their sum, that of a single one is not, whatever
    moe_router_pre_softmax is (megatron/core/transformer/moe/moe_utils.py:724 @core_v0.16.1).
    """
    path = "model.norm_topk_prob"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        single = job.model.num_experts_per_tok == 1
        if job.model.scoring_func != "softmax" and job.model.norm_topk_prob == single:
            kind = job.model.scoring_func
            why = f"{kind} scores of several experts are always normalised to one, that of a single expert never"
            raise Unsupported(path, why, (f"{path}={str(not single).lower()}",))
        return ()

    fields = (path, "model.scoring_func", "model.num_experts_per_tok")
    return Row(fields=fields, flags=(), emit=emit, when=lambda job: job.model.is_moe)


def has_option(name: str, version: str) -> bool:
    """Return whether a version of 3.x has an option of this name."""
    return in_range(version, None, THREE) and catalogue(version).get(name) is not None


def _option(model_field: ModelField, version: str) -> Row:
    path = f"model.{model_field.field}"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        for written, value in changed_fields(job, version):
            if written is model_field:
                yield model_field.option, model_field.forward(value)

    def read(view: NativeView) -> Mapping[str, Value]:
        return {path: model_field.backward(view.take(model_field.option))} if view.has(model_field.option) else {}

    return Row(fields=(path,), flags=(model_field.option,), emit=emit, read=read, until=THREE)


def _given(model_fields: tuple[ModelField, ...]) -> Row:
    def read(view: NativeView) -> Mapping[str, Value]:
        given = tuple(
            model_field.field
            for model_field in model_fields
            if view.peek(model_field.option) is not None and model_field.neutral is None
        )
        return {"model.overridden": given} if given else {}

    return Row(fields=("model.overridden",), flags=(), emit=lambda job: (), read=read, until=THREE)


def as_keys(job: Job, version: str) -> dict[str, Value]:
    """Return the values for ModelConfig, by field name."""
    return {
        model_field.key: value if model_field.key_as_is else model_field.forward(value)
        for model_field, value in changed_fields(job, version)
    }


def as_megatron(job: Job, version: str) -> dict[str, Value]:
    """Return the values without an option in this version, as Megatron-LM arguments."""
    return {
        model_field.option: model_field.forward(value)
        for model_field, value in changed_fields(job, version)
        if not has_option(model_field.option, version)
    }


def read_keys(given: dict[str, Value]) -> dict[str, Value]:
    """Take the known ModelConfig fields out of `given` and return them as canonical values."""
    found: dict[str, Value] = {}
    changed = []
    for model_field in MODEL_FIELDS:
        if model_field.key in given:
            value = given.pop(model_field.key)
            found[f"model.{model_field.field}"] = value if model_field.key_as_is else model_field.backward(value)
            if model_field.neutral is None:
                changed.append(model_field.field)
    if changed:
        found["model.overridden"] = tuple(changed)
    return found


# Fields of which the pattern of MoE layers is made.
PLACES = frozenset({"num_hidden_layers", "first_k_dense_replace", "moe_layer_freq", "mlp_only_layers"})


def layer_pattern(job: Job) -> str | None:
    """Return the pattern of MoE layers in Megatron's syntax; None for dense models and where all layers are MoE."""
    model = job.model
    if not model.is_moe or (
        model.first_k_dense_replace == 0 and model.moe_layer_freq == 1 and not model.mlp_only_layers
    ):
        return None
    if not any(map(model.has_experts_at, range(model.num_hidden_layers or 0))):
        raise Unsupported("model.first_k_dense_replace", "the pattern of layers needs more layers than dense ones")
    return expert_pattern(model)


def dense_layers_and_interval(given: Value, layers: Value) -> tuple[int, int] | None:
    """Return --moe_layer_freq as (dense layers at the start, MoE layer every n); None for other patterns.

    None also for a value that means every layer: it is passed through, else config.json's pattern would replace it.
    """
    text = str(given)
    found = (0, int(text)) if is_count(text) and int(text) else describe(expand(text) or [])
    if found in (None, (0, 1)) or (not is_count(text) and len(expand(text) or ()) != layers):
        return None
    return found
