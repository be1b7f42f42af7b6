"""Rows for the architecture: Hugging Face names of the canonical model and Megatron's network arguments."""

import re
from collections.abc import Iterable, Mapping

from backends.megatron_lm.families import OUTPUT_BIAS
from backends.megatron_lm.mapping.factories import (
    BEFORE_0_15,
    BEFORE_0_18,
    came,
    flag_on,
    flag_unless,
    refused,
    valued,
    when_set,
)
from launcher.job import Job, Value
from launcher.mapping.rows import Gap, NativeView, Read, Row, Unsupported, computed, switch, switch_off


def is_mla(job: Job) -> bool:
    """Return whether the job's model has multi-head latent attention."""
    return job.model.is_mla


def encoder_sizes() -> Row:
    """Return the row that reads sizes of an encoder without a decoder as those of the language model.

    Source: megatron/training/arguments.py:787-793, :822-827 @core_v0.16.1.
    """

    def read(view: NativeView) -> Mapping[str, Value]:
        for old, new in (("encoder-num-layers", "num-layers"), ("encoder-seq-length", "seq-length")):
            if view.has(old) and new not in view.values:
                view.values[new] = view.take(old)
                del view.values[old]  # as given once: rules refuse both names together
        return {}

    note = "--encoder-num-layers and --encoder-seq-length set what --num-layers and --seq-length do."
    return Row(fields=(), flags=(), emit=lambda job: (), read=read, note=note)


def sizes() -> tuple[Row, ...]:
    """Return the rows of layers, widths and heads."""
    return (
        when_set("model.num_hidden_layers", "num-layers"),
        when_set("model.hidden_size", "hidden-size"),
        when_set("model.intermediate_size", "ffn-hidden-size"),
        when_set("model.num_attention_heads", "num-attention-heads"),
        computed(
            ("model.num_key_value_heads",),
            ("group-query-attention", "num-query-groups"),
            _write_groups,
            _read_groups,
            note="Megatron takes --num-query-groups only beside --group-query-attention; MLA excludes both.",
        ),
        head_size(),
        latent_head_size(),
        _max_positions(),
    )


def head_size() -> Row:
    """Return the row of the head size, which MLA defines by separate fields."""
    row = when_set("model.head_dim", "kv-channels")

    def read(view: NativeView) -> Mapping[str, Value]:
        if view.peek("multi-latent-attention") or not view.has("kv-channels"):
            return {}
        return {"model.head_dim": view.take("kv-channels")}

    return Row(fields=row.fields, flags=row.flags, emit=row.emit, read=read, when=lambda job: not job.model.is_mla)


def latent_head_size() -> Row:
    """Return the row of kv-channels under MLA, which the parser only accepts to be absent if heads divide the width."""

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        yield "kv-channels", job.model.v_head_dim

    def read(view: NativeView) -> Mapping[str, Value]:
        latent = view.peek("multi-latent-attention") and view.peek("v-head-dim", 128) == view.peek("kv-channels")
        if latent and view.peek("hidden-size", 0) % view.peek("num-attention-heads", 1):
            view.take("kv-channels")
        return {}

    return computed(
        (),
        ("kv-channels",),
        emit,
        read,
        when=lambda job: job.model.is_mla and bool((job.model.hidden_size or 0) % (job.model.num_attention_heads or 1)),
        note="MLA has its own sizes; the parser wants kv-channels where the heads do not divide hidden_size.",
    )


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
            ("model.linear_bias", "model.attention_bias", "model.attention_output_bias"),
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
            since="0.15",
            note="(left, right) beside the token itself, so one less than Hugging Face's count.",
        ),
        refused(
            "model.sliding_window",
            "no argument sets an attention window",
            ("model.sliding_window=null",),
            until=BEFORE_0_15,
        ),
    )


def _write_bias(job: Job) -> Iterable[tuple[str, Value]]:
    if job.model.linear_bias and not job.model.attention_bias:
        raise Unsupported(
            "model.attention_bias",
            "biases on all linear layers include query, key and value",
            ("model.attention_bias=true", "model.linear_bias=false"),
        )
    if OUTPUT_BIAS.when(job.model):
        raise Unsupported(
            "model.attention_output_bias", OUTPUT_BIAS.describe(job.model), ("model.attention_output_bias=null",)
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


def activation() -> tuple[Row, Row]:
    """Return the rows of the activation function: GELU by default."""
    newer = {**OLDER_ACTIVATIONS, "quick_geglu": "quick-geglu"}
    return activation_of(newer, since="0.15"), activation_of(OLDER_ACTIVATIONS, until=BEFORE_0_15)


OLDER_ACTIVATIONS: Mapping[str, str] = {"silu": "swiglu", "relu2": "squared-relu"}


def activation_of(flags: Mapping[str, str], since: str | None = None, until: str | None = None) -> Row:
    """Return the row of an activation function that one of `flags` chooses; none: GELU."""
    path = "model.hidden_act"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        wanted = job.model.hidden_act
        if wanted == "gelu":
            return
        if wanted not in flags:
            why = "Megatron has SwiGLU and GELU; of ReLU only its square"
            raise Unsupported(path, why, tuple(f"{path}={name}" for name in ("silu", "gelu", "relu2")))
        yield flags[wanted], True

    def read(view: NativeView) -> Mapping[str, Value]:
        for name, flag in flags.items():
            if view.take(flag, False):
                return {path: name}
        return {path: "gelu"}

    return Row(fields=(path,), flags=tuple(flags.values()), emit=emit, read=read, since=since, until=until)


def norms_and_initialization() -> tuple[Row, ...]:
    """Return the rows of zero-centered norms, residual connections and where weights are initialized."""
    return (
        switch("model.norm_zero_centered", "apply-layernorm-1p"),
        switch("model.post_norm_residual", "apply-residual-connection-post-layernorm"),
        switch("model.cpu_initialization", "use-cpu-initialization"),
        switch("model.init_per_replica", "data-parallel-random-init"),
    )


def layer_variants() -> tuple[Row, ...]:
    """Return the rows of gated activations, heterogeneous layers and weight initialization."""
    shapes, method = "heterogeneous-layers-config", "init-method-xavier-uniform"
    return (
        when_set("model.swiglu_limit", "activation-func-clamp-value", since="0.15"),
        when_set("model.glu_linear_offset", "glu-linear-offset", since="0.15"),
        when_set("model.heterogeneous_layers_config_path", f"{shapes}-path", since="0.12"),
        when_set("model.heterogeneous_layers_config_encoded_json", f"{shapes}-encoded-json", since="0.12"),
        switch("model.use_legacy_models", "use-legacy-models", until=BEFORE_0_18),
        switch("model.init_method_xavier_uniform", method),
        switch_off("model.perform_initialization", "no-initialization"),
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
    row = when_set(path, flag, when=is_mla)

    def read(view: NativeView) -> Mapping[str, Value]:
        return {path: view.take(flag, default)} if view.peek("multi-latent-attention") else {}

    return Row(fields=row.fields, flags=row.flags, emit=row.emit, read=read, when=is_mla)


def multi_token_prediction() -> tuple[Row, ...]:
    """Return the rows of multi-token prediction; an explicit 0 is passed through."""
    scale = when_set("model.mtp_loss_scaling_factor", "mtp-loss-scaling-factor")

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


CAME_LATER: Mapping[str, Gap] = {
    "model.swiglu_limit": came(),
    "model.glu_linear_offset": came(0.0),
}
GONE: Mapping[str, Gap] = {
    "model.use_legacy_models": Gap(why="core 0.18 removed the models from before Megatron-core", neutral=(False,)),
}
