"""Rows of the model section: class, sizes, layers, positions, multi-token prediction."""

from collections.abc import Iterable, Mapping

from backends.mindformers.families import FAMILIES, older, trainable
from backends.mindformers.mapping.loader import is_megatron
from backends.mindformers.mapping.support import (
    KIND,
    MODEL,
    WEIGHTS,
    aliased,
    drop,
    first_written,
    follows,
    from_directory,
    has_latent,
    is_like_deepseek,
    key,
    require,
    written_class,
)
from launcher.job import Job, Value
from launcher.mapping.rows import NativeView, Row, choice, computed, mapped, same

_OTHERS = "its other mcore classes build for inference only (models/*/modeling_*.py: 'Train mode is not supported')"
_WHY_NOT = {
    "1.6.0": "it trains only DeepSeek-V3 there (models/*/modeling_*.py: 'Train mode is not supported')",
    "2.1.0": _OTHERS,
}


def _as_older_model(job: Job) -> tuple[str, ...]:
    """Return the changes with which a version trains the family by its older classes.

    Their files read records with full_batch; token files are split by dataset_strategy, and are to be named as such.
    """
    if not is_megatron(job):
        return ("model.legacy=true", "graph.full_batch=true")
    return ("model.legacy=true", *(("data.format=megatron",) if job.data.format is None else ()))


_TYPE = "model.model_type"


def _model_class(version: str) -> Row:
    classes = trainable(version)
    rows = {family: FAMILIES[family] for family in older(version)}
    older_models = [family for family, row in rows.items() if row.older_config is not None and row.registered]

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        kind = job.model.model_type
        if kind is None and (from_directory(job) or KIND in job.backend.passthrough):
            return
        reason = f"with use_legacy: False this version trains {', '.join(classes)}; {_WHY_NOT.get(version, _OTHERS)}"
        if older_models:
            reason += f"; with model.legacy=true it trains {', '.join(older_models)}"
        others = (f"backend.version={each}" for each in _WHY_NOT if each != version and kind in trainable(each))
        works = (*((_as_older_model(job),) if kind in older_models else ()), *others)
        if kind is None:
            from launcher.families.like import families_like, why_none

            alike, different = families_like(job.model), why_none(job.model)
            works = (
                *((f"{_TYPE}={name}",) for name in alike if name in classes),
                *((f"{_TYPE}={name}", *_as_older_model(job)) for name in alike if name in older_models),
            )
            reason = reason if works or not different else f"{different}; {reason}"
        require(kind in classes, _TYPE, reason, *works)
        yield KIND, kind
        yield key("architectures"), (classes[str(kind)],)

    def read(view: NativeView) -> Mapping[str, Value]:
        kind = view.peek(KIND)
        if kind not in classes:
            return {}
        view.take(KIND)
        names = view.peek(key("architectures"))
        if names is not None and classes[kind] in ([names] if isinstance(names, str) else names):
            view.take(key("architectures"))
        defaults = FAMILIES[str(kind)].class_defaults(version) if written_class(view) else {}
        return {**defaults, "model.model_type": kind}

    return Row(
        fields=("model.model_type",),
        flags=(KIND, key("architectures")),
        emit=emit,
        read=read,
        note="the class that trains; Llama, Qwen2, Mixtral and DeepSeek-V2 have no mcore training class",
    )


def _vocabulary() -> Row:
    flag = key("vocab_size")

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        size, tokenizer = job.model.vocab_size, job.tokenizer
        if tokenizer.padded_vocab_size is not None:
            padded: int | None = tokenizer.padded_vocab_size
        elif tokenizer.make_vocab_size_divisible_by is not None and size is not None:
            unit = tokenizer.make_vocab_size_divisible_by * job.parallel.tp
            padded = -(-size // unit) * unit
        else:
            padded = size
        if padded is None:
            return
        if size is not None and padded != size and job.model.pretrained is not False and job.model.path:
            why = f"pre-trained weights have {size} rows of vocabulary, and MindFormers loads them only unpadded"
            require(False, "tokenizer.padded_vocab_size", why, "model.pretrained=false")
        tied = padded % job.parallel.tp == 0
        why = f"{padded} is not a multiple of tp {job.parallel.tp}, and MindFormers does not pad the vocabulary"
        unit = job.parallel.tp
        require(tied, "model.vocab_size", why, f"tokenizer.padded_vocab_size={-(-padded // unit) * unit}")
        yield flag, padded

    return Row(
        fields=("model.vocab_size", "tokenizer.padded_vocab_size", "tokenizer.make_vocab_size_divisible_by"),
        flags=(flag,),
        emit=emit,
        read=lambda view: {"model.vocab_size": view.take(flag)} if view.has(flag) else {},
        note="MindFormers never pads: the padded size, where one is asked for, is written as the vocabulary",
    )


def _head_size() -> Row:
    flags = (key("head_dim"), key("kv_channels"))

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if job.model.head_size is not None:
            yield flags[0], job.model.head_size

    def read(view: NativeView) -> Mapping[str, Value]:
        given = first_written(view, flags)
        return {"model.head_dim": view.take(given)} if given else {}

    return Row(
        fields=("model.head_dim",),
        flags=flags,
        emit=emit,
        read=read,
        when=lambda job: not job.model.is_mla,
        note="always written: Qwen3Config's own default is 128 (models/qwen3/configuration_qwen3.py:170 @2.1.0)",
    )


def _activation() -> Row:
    act, gated, fusion = key("hidden_act"), key("gated_linear_unit"), key("bias_swiglu_fusion")
    names = {"silu": "silu", "swiglu": "silu", "fusedswiglu": "silu", "gelu": "gelu"}

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        name, fused = job.model.hidden_act, job.kernels.bias_activation_fusion
        require(name in ("silu", "gelu"), "model.hidden_act", f"it knows silu (SwiGLU) and gelu, not {name}")
        why = "its experts are SwiGLU whatever hidden_act is (training_graph/transformer/moe/ffn.py)"
        require(name == "silu" or not job.model.is_moe, "model.hidden_act", why, "model.hidden_act=silu")
        yield act, "swiglu" if name == "silu" and fused else name
        yield gated, name == "silu"
        if fused is not None:
            why = "only SwiGLU has a fused kernel (transformer_config.py:2618 @2.1.0)"
            require(name == "silu" or not fused, "kernels.bias_activation_fusion", why)
            yield fusion, fused

    def read(view: NativeView) -> Mapping[str, Value]:
        found: dict[str, Value] = {}
        written = view.peek(act)
        if written in names:
            view.take(act)
            found["model.hidden_act"] = names[written]
            drop(view, {gated: names[written] == "silu"})
        if view.has(fusion):
            found["kernels.bias_activation_fusion"] = view.take(fusion)
        if written == "fusedswiglu":
            found["kernels.bias_activation_fusion"] = True
        return found

    return computed(
        ("model.hidden_act", "kernels.bias_activation_fusion"), (act, gated, fusion), emit, read, note="silu is SwiGLU"
    )


def _biases() -> Row:
    qkv, other = (key("attention_bias"), key("qkv_has_bias"), key("add_qkv_bias")), key("add_bias_linear")

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        model = job.model
        why = "add_bias_linear also puts a bias on query, key and value (attention.py:523 @2.1.0)"
        require(not model.linear_bias or model.attention_bias, "model.linear_bias", why, "model.attention_bias=true")
        why = "mixture of experts has no bias (transformer_config.py:2472 @2.1.0)"
        require(not (model.linear_bias and model.is_moe), "model.linear_bias", why, "model.linear_bias=false")
        yield qkv[0], model.attention_bias
        yield other, model.linear_bias

    def read(view: NativeView) -> Mapping[str, Value]:
        found: dict[str, Value] = {}
        given = first_written(view, qkv)
        if given is not None:
            found["model.attention_bias"] = view.take(given)
        if view.has(other):
            found["model.linear_bias"] = view.take(other)
            if found["model.linear_bias"]:
                found["model.attention_bias"] = True
        return found

    note = "both are always written: TransformerConfig's add_bias_linear defaults to true"
    return computed(("model.attention_bias", "model.linear_bias"), (*qkv, other), emit, read, note=note)


def _query_key_norm(version: str) -> Row:
    flags = (key("qk_layernorm"), key("use_qk_norm"))

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if job.model.model_type in ("qwen3", "qwen3_moe") and not from_directory(job):
            why = "its Qwen3 classes normalise query and key heads always (modeling_qwen3_train.py:46 @2.1.0)"
            require(job.model.qk_layernorm, "model.qk_layernorm", why, "model.qk_layernorm=true")
        yield flags[0], job.model.qk_layernorm

    def read(view: NativeView) -> Mapping[str, Value]:
        given = first_written(view, flags)
        return {"model.qk_layernorm": view.take(given)} if given else {}

    return Row(fields=("model.qk_layernorm",), flags=flags, emit=emit, read=read)


def _tied_embeddings() -> Row:
    flag = key("tie_word_embeddings")

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        why = "its DeepSeek-V3 never shares the two matrices (modeling_deepseek_v3_train.py:51 @2.1.0)"
        require(not (job.model.tie_word_embeddings and job.model.is_mla), "model.tie_word_embeddings", why)
        yield flag, job.model.tie_word_embeddings

    return Row(
        fields=("model.tie_word_embeddings",),
        flags=(flag,),
        emit=emit,
        read=lambda view: {"model.tie_word_embeddings": view.take(flag)} if view.has(flag) else {},
    )


_ROPE = key("rope_scaling")
_ROPE_FIELDS = ("factor", "original_max_position_embeddings", "beta_fast", "beta_slow", "mscale", "mscale_all_dim")
_NO_SCALING = key("rotary_scaling_factor")


def _rope_scaling() -> Row:
    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        scaling, model = job.model.rope_scaling, job.model
        if scaling.type is None:
            if model.is_mla:
                # MLA scales its softmax by yarn's temperature even without yarn, and the factor defaults to 40:
                # scores 1.59 times too large (multi_latent_attention.py:137 @2.1.0, :133 @1.6.0).
                yield _NO_SCALING, 1.0
            return
        path = "model.rope_scaling.type"
        why = "its training graph stretches positions only for MLA, with yarn (gpt_model.py: YarnRotaryEmbedding)"
        require(scaling.type == "yarn" and model.is_mla, path, why, "model.rope_scaling.type=null")
        require(scaling.factor is not None, "model.rope_scaling.factor", "yarn needs a factor")
        mscale = 1.0 if scaling.mscale is None else scaling.mscale
        all_dim = mscale if scaling.mscale_all_dim is None else scaling.mscale_all_dim
        why = f"its softmax is scaled by mscale, Hugging Face's by mscale_all_dim; {mscale} and {all_dim} differ"
        require(
            mscale == all_dim, "model.rope_scaling.mscale_all_dim", why, f"model.rope_scaling.mscale_all_dim={mscale}"
        )
        longest = scaling.original_max_position_embeddings or model.max_position_embeddings
        known = {
            "type": "yarn",
            "factor": scaling.factor,
            "original_max_position_embeddings": longest,
            "beta_fast": 32.0 if scaling.beta_fast is None else scaling.beta_fast,
            "beta_slow": 1.0 if scaling.beta_slow is None else scaling.beta_slow,
            "mscale": mscale,
            "mscale_all_dim": all_dim,
        }
        yield _ROPE, {name: value for name, value in known.items() if value is not None}

    def read(view: NativeView) -> Mapping[str, Value]:
        written = view.peek(_ROPE)
        if not isinstance(written, Mapping):
            latent = has_latent(view)
            if latent and not view.peek(WEIGHTS):
                view.values.setdefault(_NO_SCALING, 40.0)  # The default if a file omits it: kept as a native argument.
                drop(view, {_NO_SCALING: 1.0})
            return {}
        kind = written.get("type", written.get("rope_type"))
        if kind != "yarn" or set(written) - {"type", "rope_type", *_ROPE_FIELDS}:
            return {}
        view.take(_ROPE)
        found = {f"model.rope_scaling.{name}": written[name] for name in _ROPE_FIELDS if name in written}
        return {"model.rope_scaling.type": kind, **found}

    return Row(
        fields=("model.rope_scaling.type", *(f"model.rope_scaling.{name}" for name in _ROPE_FIELDS)),
        flags=(_ROPE, _NO_SCALING),
        emit=emit,
        read=read,
        note="without yarn MLA gets rotary_scaling_factor 1, or its softmax would be scaled by yarn's temperature",
    )


def _weights() -> Row:
    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if not job.model.starts_from_weights:
            return
        why = "it loads weights from a local directory, not from a hub"
        require(job.model.path is not None, "model.hub_id", why, "model.path=DIR", "model.pretrained=false")
        yield WEIGHTS, job.model.path
        if job.checkpoint.load is None:
            yield "load_checkpoint", ""

    def read(view: NativeView) -> Mapping[str, Value]:
        if not view.has(WEIGHTS) or not view.peek(WEIGHTS):
            drop(view, {WEIGHTS: ""})
            return {}
        if not view.peek("load_checkpoint"):
            drop(view, {"load_checkpoint": ""})
        return {"model.path": view.take(WEIGHTS), "model.pretrained": True}

    return Row(
        fields=("model.path", "model.pretrained", "model.hub_id"),
        flags=(WEIGHTS, "load_checkpoint"),
        emit=emit,
        read=read,
        note="only for pre-trained weights: a directory with safetensors is loaded even where load_checkpoint is empty "
        "(trainer/trainer.py:1471 @2.1.0), so a random start must not name it; the architecture is written out",
    )


def weight_rows() -> tuple[Row, ...]:
    """Return the rows of initial weights."""
    return (_weights(),)


def model_rows(version: str) -> tuple[Row, ...]:
    """Return the rows of a dense model, in the order of MindFormers' examples."""
    return (
        _model_class(version),
        _vocabulary(),
        aliased("model.hidden_size", "hidden_size"),
        aliased("model.intermediate_size", "intermediate_size", "ffn_hidden_size"),
        aliased("model.num_hidden_layers", "num_hidden_layers", "num_layers", "n_layer"),
        aliased("model.max_position_embeddings", "max_position_embeddings"),
        same("batch.seq_length", key("seq_length")),
        aliased("model.num_attention_heads", "num_attention_heads", "num_heads", "n_head"),
        _key_value_heads(),
        _head_size(),
        _activation(),
        choice("model.normalization", key("normalization"), {"RMSNorm": "RMSNorm", "LayerNorm": "LayerNorm"}),
        aliased("model.rms_norm_eps", "rms_norm_eps", "layernorm_epsilon", "layer_norm_epsilon"),
        _query_key_norm(version),
        _biases(),
        _tied_embeddings(),
        mapped("model.attention_dropout", key("attention_dropout"), float, float, note="default would be 0.1"),
        aliased("model.initializer_range", "initializer_range", "init_method_std"),
        choice(
            "model.position_embedding",
            key("position_embedding_type"),
            {"rope": "rope", "none": "none"},
            why="its training classes use rotary positions or none",
        ),
        aliased("model.rope_theta", "rope_theta", "theta", "rotary_base"),
        _rope_scaling(),
        follows(key("input_sliced_sig"), True, "data.columns", note="samples have labels of their own"),
    )


def _key_value_heads() -> Row:
    flags = tuple(key(name) for name in ("num_key_value_heads", "n_kv_heads", "num_query_groups"))

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        heads = job.model.num_key_value_heads or job.model.num_attention_heads
        if heads is not None:
            yield flags[0], heads

    def read(view: NativeView) -> Mapping[str, Value]:
        given = first_written(view, flags)
        return {"model.num_key_value_heads": view.take(given)} if given else {}

    note = "always written: the config classes default to the heads of their own model"
    return Row(fields=("model.num_key_value_heads",), flags=flags, emit=emit, read=read, note=note)


def prediction_rows(version: str) -> tuple[Row, ...]:
    """Return the rows of multi-token prediction, which only the DeepSeek-V3 class has."""
    flags = tuple(key(name) for name in ("num_nextn_predict_layers", "mtp_num_layers", "mtp_depth"))
    factors = tuple(key(name) for name in ("mtp_loss_factor", "mtp_loss_scaling_factor"))
    paths = ("model.num_nextn_predict_layers", "model.mtp_loss_scaling_factor")

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        layers, model = job.model.num_nextn_predict_layers, job.model
        require(layers <= 1, paths[0], "it builds at most one (transformer_config.py:2344 @2.1.0)", f"{paths[0]}=1")
        require(not layers or is_like_deepseek(job), paths[0], "only its DeepSeek-V3 class has MTP", f"{paths[0]}=0")
        factor = model.mtp_loss_scaling_factor
        if from_directory(job):
            yield from ((flag, value) for flag, value in ((flags[0], layers), (factors[0], factor)) if value)
            return
        if model.is_mla:
            yield flags[0], layers
        if layers:
            yield factors[0], 0.1 if factor is None else factor

    def read(view: NativeView) -> Mapping[str, Value]:
        found: dict[str, Value] = {}
        for path, names in zip(paths, (flags, factors), strict=True):
            given = first_written(view, names)
            if given is not None:
                found[path] = view.take(given)
        return found

    note = "DeepseekV3Config's own default is one layer; the weight has no default (Megatron-core: 0.1)"
    return (Row(fields=paths, flags=(*flags, *factors), emit=emit, read=read, note=note),)


def rotation_and_residual_rows() -> tuple[Row, ...]:
    """Return the rows of interleaved rotary embeddings and of residual connections after norms."""
    return (
        same("model.rotary_interleaved", key("rotary_interleaved")),
        same("model.post_norm_residual", key("apply_residual_connection_post_layernorm")),
    )


def dropout_row() -> Row:
    """Return the row of hidden dropout, which config.json does not have; MindFormers' default is 0.1."""
    path, flag = "model.hidden_dropout", key("hidden_dropout")

    def read(view: NativeView) -> Mapping[str, Value]:
        if view.has(flag):
            return {path: float(view.take(flag))}
        without_model = not any(name.startswith(MODEL) for name in view.values)
        return {} if without_model else {path: 0.0 if view.peek(KIND) == "deepseek_v3" else 0.1}

    note = "a float, 0 is refused; DeepSeek's class has 0 and every other one 0.1 (transformer_config.py @2.1.0)"
    return Row(
        fields=(path,),
        flags=(flag,),
        emit=lambda job: ((flag, float(job.model.hidden_dropout)),),
        read=read,
        note=note,
    )
