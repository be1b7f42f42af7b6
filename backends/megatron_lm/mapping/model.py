"""Rows for the architecture: Hugging Face names of the canonical model and Megatron's network arguments."""

import re
from collections.abc import Iterable, Mapping

from backends.megatron_lm.mapping.details import activation
from backends.megatron_lm.mapping.factories import flag_on, flag_unless, refused, valued, when_given
from launcher.job import Job, Value, field_paths
from launcher.mapping.rows import NativeView, Read, Row, Unsupported, computed

# Constants of RotaryEmbedding._apply_scaling, which no argument sets.
# Source: megatron/core/models/common/embeddings/rotary_pos_embedding.py:94-98 @core_v0.16.1
_LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
# Fields of MLATransformerConfig without an argument. Source: transformer_config.py:2046 @core_v0.16.1
_YARN = {"beta_fast": 32.0, "beta_slow": 1.0, "original_max_position_embeddings": 4096}


def is_mla(job: Job) -> bool:
    """Return whether the job's model has multi-head latent attention."""
    return job.model.is_mla


def has_rope(job: Job) -> bool:
    """Return whether the job's model has rotary position embeddings."""
    return job.model.position_embedding == "rope"


def sizes() -> tuple[Row, ...]:
    """Return the rows of layers, widths and heads."""
    return (
        when_given("model.num_hidden_layers", "num-layers"),
        when_given("model.hidden_size", "hidden-size"),
        when_given("model.intermediate_size", "ffn-hidden-size"),
        when_given("model.num_attention_heads", "num-attention-heads"),
        computed(
            ("model.num_key_value_heads",),
            ("group-query-attention", "num-query-groups"),
            _write_groups,
            _read_groups,
            note="Megatron takes --num-query-groups only beside --group-query-attention; MLA excludes both.",
        ),
        head_size(),
        _max_positions(),
    )


def head_size() -> Row:
    """Return the row of the head size, which MLA defines by separate fields."""
    row = when_given("model.head_dim", "kv-channels")

    def read(view: NativeView) -> Mapping[str, Value]:
        if view.peek("multi-latent-attention") or not view.has("kv-channels"):
            return {}
        return {"model.head_dim": view.take("kv-channels")}

    return Row(fields=row.fields, flags=row.flags, emit=row.emit, read=read, when=lambda job: not job.model.is_mla)


def _write_groups(job: Job) -> Iterable[tuple[str, Value]]:
    groups = job.model.num_key_value_heads
    if groups is None or groups == job.model.num_attention_heads or job.model.is_mla:
        return
    yield "group-query-attention", True
    yield "num-query-groups", groups


def _read_groups(view: NativeView) -> Mapping[str, Value]:
    if view.take("group-query-attention", False):
        return {"model.num_key_value_heads": view.take("num-query-groups", 1)}
    return {"model.num_key_value_heads": view.peek("num-attention-heads")}


def _max_positions() -> Row:
    path = "model.max_position_embeddings"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        longest, sequence = job.model.max_position_embeddings, job.batch.seq_length
        if longest is not None and sequence is not None and longest < sequence:
            raise Unsupported(path, f"sequences of {sequence} tokens need as many positions", (f"{path}={sequence}",))
        if longest is not None or sequence is not None:
            yield "max-position-embeddings", sequence if longest is None else longest

    def read(view: NativeView) -> Mapping[str, Value]:
        return {path: view.take("max-position-embeddings")}

    return Row(
        fields=(path, "batch.seq_length"),
        flags=("max-position-embeddings",),
        emit=emit,
        read=read,
        note="Required, and at least --seq-length (validate_args); with RoPE it sets nothing else.",
    )


def layers() -> tuple[Row, ...]:
    """Return the rows of normalisation, activation, biases, dropout and initialisation."""
    return (
        *activation(),
        valued("model.normalization", "normalization", "LayerNorm"),
        valued("model.rms_norm_eps", "norm-epsilon", 1e-5, note="Megatron's own default is 1e-5."),
        flag_unless("model.tie_word_embeddings", "untie-embeddings-and-output-weights"),
        computed(
            ("model.linear_bias", "model.attention_bias"),
            ("disable-bias-linear", "add-qkv-bias"),
            _write_bias,
            _read_bias,
            note="Megatron has all biases by default; without them --add-qkv-bias adds those of query, key and value.",
        ),
        flag_on(
            "model.qk_layernorm",
            "qk-layernorm",
            note="With MLA it makes the norms of the compressed query and key/value, which belong to the architecture.",
        ),
        valued("model.initializer_range", "init-method-std", 0.02),
        valued("model.attention_dropout", "attention-dropout", 0.1, note="Megatron's own default is 0.1."),
        valued("model.hidden_dropout", "hidden-dropout", 0.1, note="Megatron's own default is 0.1."),
        computed(
            ("model.sliding_window",),
            ("window-size",),
            lambda job: (
                (("window-size", f"({job.model.sliding_window - 1},0)"),)
                if job.model.sliding_window is not None
                else ()
            ),
            _read_window,
            since="0.14",
            note="(left, right) beside the token itself, so one less than Hugging Face's count.",
        ),
        refused(
            "model.sliding_window", "no argument sets an attention window", ("model.sliding_window=null",), until="0.13"
        ),
    )


def _write_bias(job: Job) -> Iterable[tuple[str, Value]]:
    if job.model.linear_bias and not job.model.attention_bias:
        raise Unsupported(
            "model.attention_bias",
            "biases on all linear layers include query, key and value",
            ("model.attention_bias=true", "model.linear_bias=false"),
        )
    if not job.model.linear_bias:
        yield "disable-bias-linear", True
        if job.model.attention_bias:
            yield "add-qkv-bias", True


def _read_bias(view: NativeView) -> Mapping[str, Value]:
    linear = not view.take("disable-bias-linear", False)
    attention = bool(view.take("add-qkv-bias", False)) or linear
    return {"model.linear_bias": linear, "model.attention_bias": attention}


def _read_window(view: NativeView) -> Mapping[str, Value]:
    found = re.fullmatch(r"\(?\s*(\d+)\s*,\s*0\s*\)?", str(view.peek("window-size", "")))
    if found is None:
        return {}
    view.take("window-size")
    return {"model.sliding_window": int(found.group(1)) + 1}


def positions() -> tuple[Row, ...]:
    """Return the rows of position embeddings, with Llama 3, linear and YaRN scaling."""
    return (
        valued("model.position_embedding", "position-embedding-type", "learned_absolute"),
        computed(
            ("model.rope_theta",),
            ("rotary-base",),
            _write_theta,
            lambda view: {"model.rope_theta": view.take("rotary-base", 10000)},
            when=has_rope,
        ),
        valued("model.partial_rotary_factor", "rotary-percent", 1.0, quiet=True, when=has_rope),
        *rope_scaling(),
    )


def _write_theta(job: Job) -> Iterable[tuple[str, Value]]:
    theta = job.model.rope_theta
    if theta != int(theta):
        raise Unsupported(
            "model.rope_theta", "--rotary-base takes whole numbers", (f"model.rope_theta={round(theta)}",)
        )
    yield "rotary-base", int(theta)


def rope_scaling() -> tuple[Row, ...]:
    """Return the rows of RoPE scaling."""
    fields = tuple(path for path in field_paths() if path.startswith("model.rope_scaling."))
    flags = ("use-rope-scaling", "rope-scaling-factor", "rotary-seq-len-interpolation-factor", "rotary-scaling-factor")
    return (
        computed(
            ("model.rope_scaling.type", "model.kv_lora_rank"),
            ("rope-type",),
            _write_rope_type,
            _read_rope_type,
            when=lambda job: has_rope(job) and job.model.is_mla,
            since="0.13",
            note="MLATransformerConfig.rope_type is yarn unless said otherwise.",
        ),
        computed(fields, (*flags, "mscale", "mscale-all-dim"), _write_scaling, _read_scaling, when=has_rope),
        refused_mscale(),
    )


def _write_rope_type(job: Job) -> Iterable[tuple[str, Value]]:
    yield "rope-type", "yarn" if job.model.rope_scaling.type == "yarn" else "rope"


def _read_rope_type(view: NativeView) -> Mapping[str, Value]:
    if not view.peek("multi-latent-attention"):
        return {}
    if view.take("rope-type", "yarn") == "yarn" and view.peek("rotary-scaling-factor", 1.0) != 1.0:
        return {"model.rope_scaling.type": "yarn"}
    return {}


def _write_scaling(job: Job) -> Iterable[tuple[str, Value]]:
    scaling = job.model.rope_scaling
    if scaling.type is None:
        return
    if scaling.type == "llama3":
        _only_fixed(job, _LLAMA3, "Llama 3 scaling")
        yield "use-rope-scaling", True
        yield "rope-scaling-factor", 8.0 if scaling.factor is None else scaling.factor
    elif scaling.type == "linear" and not job.model.is_mla and scaling.factor is not None:
        if scaling.factor != int(scaling.factor):
            raise Unsupported("model.rope_scaling.factor", "linear scaling takes whole numbers")
        yield "rotary-seq-len-interpolation-factor", int(scaling.factor)
    elif scaling.type == "yarn" and job.model.is_mla:
        _only_fixed(job, _YARN, "YaRN")
        yield "rotary-scaling-factor", 1.0 if scaling.factor is None else scaling.factor
        # Absent keys mean 1 and 0: transformers modeling_rope_utils._compute_yarn_parameters, DeepseekV3Attention.
        yield "mscale", 1.0 if scaling.mscale is None else scaling.mscale
        yield "mscale-all-dim", 0.0 if scaling.mscale_all_dim is None else scaling.mscale_all_dim
    else:
        raise Unsupported(
            "model.rope_scaling.type",
            f"{scaling.type} scaling of {'MLA' if job.model.is_mla else 'ordinary attention'} has no argument",
            ("model.rope_scaling.type=null",),
        )


def _only_fixed(job: Job, constants: Mapping[str, float], name: str) -> None:
    for key, value in constants.items():
        wanted = getattr(job.model.rope_scaling, key)
        if wanted is not None and wanted != value:
            path = f"model.rope_scaling.{key}"
            raise Unsupported(
                path, f"{name} is built with {value:g}, which no argument changes", (f"{path}={value:g}",)
            )


def _read_scaling(view: NativeView) -> Mapping[str, Value]:
    prefix = "model.rope_scaling."
    if view.take("use-rope-scaling", False):
        return {prefix + "type": "llama3", prefix + "factor": view.take("rope-scaling-factor", 8.0)}
    if view.has("rotary-seq-len-interpolation-factor"):
        factor = view.take("rotary-seq-len-interpolation-factor")
        return {prefix + "type": "linear", prefix + "factor": factor}
    if view.peek("multi-latent-attention") and view.peek("rotary-scaling-factor", 1.0) != 1.0:
        return {
            prefix + "type": "yarn",
            prefix + "factor": view.take("rotary-scaling-factor"),
            prefix + "mscale": view.take("mscale", 1.0),
            prefix + "mscale_all_dim": view.take("mscale-all-dim", 0.0),
        }
    return {}


def refused_mscale() -> Row:
    """Return the row that rejects mscale_all_dim unequal to mscale before 0.13, which reads mscale instead."""

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        scaling = job.model.rope_scaling
        if scaling.type == "yarn" and (scaling.mscale or 1.0) != (scaling.mscale_all_dim or 0.0):
            raise Unsupported(
                "model.rope_scaling.mscale_all_dim",
                "the softmax scale is computed from mscale in this version, so both must be equal",
            )
        return ()

    return Row(
        fields=("model.rope_scaling.mscale_all_dim",),
        flags=(),
        emit=emit,
        until="0.12.9",
        when=is_mla,
        note="megatron/core/transformer/multi_latent_attention.py:83 @core_v0.12.1; mscale_all_dim since 0.13.",
    )


def latent_attention() -> tuple[Row, ...]:
    """Return the rows of multi-head latent attention; its ranks have defaults in Megatron, so all are written."""
    return (
        computed(
            ("model.kv_lora_rank",),
            ("multi-latent-attention", "kv-lora-rank"),
            lambda job: (("multi-latent-attention", True), ("kv-lora-rank", job.model.kv_lora_rank)),
            _read_mla,
            when=is_mla,
        ),
        _rank("model.q_lora_rank", "q-lora-rank", None),
        _rank("model.qk_nope_head_dim", "qk-head-dim", 128),
        _rank("model.qk_rope_head_dim", "qk-pos-emb-head-dim", 64),
        _rank("model.v_head_dim", "v-head-dim", 128),
    )


def _read_mla(view: NativeView) -> Mapping[str, Value]:
    if not view.has("multi-latent-attention"):
        return {}
    view.take("multi-latent-attention")
    return {"model.kv_lora_rank": view.take("kv-lora-rank", 32)}


def _rank(path: str, flag: str, default: Value) -> Row:
    row = when_given(path, flag, when=is_mla)

    def read(view: NativeView) -> Mapping[str, Value]:
        return {path: view.take(flag, default)} if view.peek("multi-latent-attention") else {}

    return Row(fields=row.fields, flags=row.flags, emit=row.emit, read=read, when=is_mla)


def multi_token_prediction() -> tuple[Row, ...]:
    """Return the rows of multi-token prediction; an explicit 0 is passed through."""
    scale = when_given("model.mtp_loss_scaling_factor", "mtp-loss-scaling-factor")

    def if_any(read: Read) -> Read:
        return lambda view: read(view) if view.peek("mtp-num-layers") else {}

    return (
        computed(
            ("model.num_nextn_predict_layers",),
            ("mtp-num-layers",),
            lambda job: (("mtp-num-layers", job.model.num_nextn_predict_layers),),
            if_any(lambda view: {"model.num_nextn_predict_layers": view.take("mtp-num-layers")}),
            when=_predicts,
        ),
        Row(
            fields=scale.fields,
            flags=scale.flags,
            emit=scale.emit,
            read=if_any(scale.read or (lambda view: {})),
            when=_predicts,
        ),
    )


def _predicts(job: Job) -> bool:
    return job.model.num_nextn_predict_layers > 0
