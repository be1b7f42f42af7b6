"""Rows of legacy models (use_legacy: True), whose classes have different names for the same architecture."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from backends.mindformers.families import FAMILIES
from backends.mindformers.mapping.loader import (
    HUB,
    MEGATRON,
    TYPE,
    is_hub,
    is_megatron,
    is_tokenized,
    is_tokenized_file,
)
from backends.mindformers.mapping.support import drop, is_legacy, key, legacy_file, require
from launcher.job import Job, Value, fields, value_at
from launcher.mapping.rows import NativeView, Row
from launcher.records import dataclass

_ARCH, _CLASS = "model.arch.type", key("type")
# Class of the section to the class that is built.
_BUILT = {"LlamaConfig": "LlamaForCausalLM", "DeepseekV3Config": "DeepseekV3ForCausalLM"}
_OF_FAMILY = {name: row.older_config for name, row in FAMILIES.items() if row.older_config is not None}

_COMMON = {
    "batch.seq_length": "seq_length",
    "model.hidden_size": "hidden_size",
    "model.num_hidden_layers": "num_layers",
    "tokenizer.bos_token_id": "bos_token_id",
    "tokenizer.eos_token_id": "eos_token_id",
    "tokenizer.pad_token_id": "pad_token_id",
    "precision.dtype": "compute_dtype",
    "precision.norm_in_fp32": "layernorm_compute_type",
    "precision.rope_in_fp32": "rotary_dtype",
    "optimizer.main_params_dtype": "param_init_type",
    "kernels.attention_backend": "use_flash_attention",
    "overlap.sequence_parts": "fine_grain_interleave",
    "kernels.qkv_concat": "qkv_concat",
}
_LLAMA = {
    **_COMMON,
    "model.num_attention_heads": "num_heads",
    "model.num_key_value_heads": "n_kv_heads",
    "model.intermediate_size": "intermediate_size",
    "model.vocab_size": "vocab_size",
    "model.max_position_embeddings": "max_position_embedding",
    "model.rms_norm_eps": "rms_norm_eps",
    "model.rope_theta": "theta",
    "model.attention_bias": "qkv_has_bias",
    "model.initializer_range": "init_method_std",
    "model.tie_word_embeddings": "tie_word_embeddings",
    "model.rope_scaling.type": "extend_method",
    "model.rope_scaling.factor": "scaling_factor",
    "precision.attention_softmax_in_fp32": "softmax_compute_type",
}
# Class of the section to its key of each canonical field.
KEYS: Mapping[str, Mapping[str, str]] = {
    "LlamaConfig": _LLAMA,
    "DeepseekV3Config": {
        **{path: name for path, name in _LLAMA.items() if not path.startswith("model.rope_scaling")},
        "model.max_position_embeddings": "max_position_embeddings",
        "model.q_lora_rank": "q_lora_rank",
        "model.kv_lora_rank": "kv_lora_rank",
        "model.qk_rope_head_dim": "qk_rope_head_dim",
        "model.qk_nope_head_dim": "qk_nope_head_dim",
        "model.v_head_dim": "v_head_dim",
        "model.num_nextn_predict_layers": "mtp_depth",
        "model.mtp_loss_scaling_factor": "mtp_loss_factor",
    },
    "TelechatConfig": {
        **{path: name for path, name in _LLAMA.items() if name not in ("init_method_std", "tie_word_embeddings")},
        "model.hidden_dropout": "hidden_dropout_prob",
        "model.attention_dropout": "attention_dropout_prob",
    },
    "ChatGLM2Config": {
        **_COMMON,
        "model.num_attention_heads": "num_attention_heads",
        "model.num_key_value_heads": "multi_query_group_num",
        "model.intermediate_size": "ffn_hidden_size",
        "model.head_dim": "kv_channels",
        "tokenizer.padded_vocab_size": "padded_vocab_size",
        "model.rms_norm_eps": "layernorm_epsilon",
        "model.attention_bias": "add_qkv_bias",
        "model.linear_bias": "add_bias_linear",
        "model.hidden_dropout": "hidden_dropout",
        "model.attention_dropout": "attention_dropout",
        "kernels.bias_dropout_fusion": "bias_dropout_fusion",
        "precision.apply_query_key_layer_scaling": "apply_query_key_layer_scaling",
        "precision.attention_softmax_in_fp32": "attention_softmax_in_fp32",
        "precision.residual_in_fp32": "fp32_residual_connection",
    },
}
# Written where the job says nothing: by default the classes have float16 weights, and attention that adds the loader's
# mask as it is (models/llama/llama_config.py:151, llama_transformer.py:722 @1.6.0).
_ALWAYS: Mapping[str, Value] = {"optimizer.main_params_dtype": "fp32", "kernels.attention_backend": "flash"}
_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Codec:
    """Conversion of a value; None from `write`: not written, KeyError from `read`: unknown value."""

    write: Callable[[Job, Any], Value]
    read: Callable[[Value], Value]


def _width(job: Job, wide: bool) -> Value:
    return "float32" if wide else _DTYPES[job.precision.dtype]


_PLAIN = _Codec(write=lambda job, value: value, read=lambda value: value)
_TYPE = _Codec(
    write=lambda job, value: _DTYPES[value], read=lambda value: {name: each for each, name in _DTYPES.items()}[value]
)
_WIDE = _Codec(write=_width, read=lambda value: {"float32": True, "bfloat16": False}[value])
_WEIGHTS = _Codec(
    write=lambda job, value: {"fp32": "float32", "fp16": "float16"}[value],
    read=lambda value: {"float32": "fp32", "float16": "fp16"}[value],
)
_FLASH = _Codec(
    write=lambda job, value: value not in ("unfused", "local"),
    read=lambda value: {True: "flash", False: "unfused"}[value],
)
_TOKENS = _Codec(
    write=lambda job, value: value[0] if len(value) == 1 else value or None,
    read=lambda value: tuple(value) if isinstance(value, (tuple, list)) else (value,),
)
_NO_SCALING = _Codec(write=lambda job, value: None, read=lambda value: {"None": None}[value])
_FACTOR = _Codec(write=lambda job, value: None, read=lambda value: {1.0: None}[value])
_NUMBER = _Codec(write=lambda job, value: float(value), read=float)
_CODECS: Mapping[str, _Codec] = {
    "precision.dtype": _TYPE,
    "precision.norm_in_fp32": _WIDE,
    "precision.rope_in_fp32": _WIDE,
    "optimizer.main_params_dtype": _WEIGHTS,
    "kernels.attention_backend": _FLASH,
    "tokenizer.eos_token_id": _TOKENS,
    "model.rope_scaling.type": _NO_SCALING,
    "model.rope_scaling.factor": _FACTOR,
    "model.hidden_dropout": _NUMBER,
    "model.attention_dropout": _NUMBER,
}


def class_of(job: Job) -> str | None:
    """Return the class of the model section, from the job or passed through."""
    family = job.model.model_type
    return _OF_FAMILY.get(family) if family is not None else job.backend.passthrough.get(_CLASS)


def _codec(path: str, name: str) -> _Codec:
    if path == "precision.attention_softmax_in_fp32":
        return _PLAIN if name == path.rpartition(".")[2] else _WIDE
    return _CODECS.get(path, _PLAIN)


def _row(path: str) -> Row:
    """Return the row of one canonical field under each class's key."""
    names = {kind: names[path] for kind, names in KEYS.items() if path in names}

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        value, name = value_at(job, path), names.get(class_of(job) or "")
        value = _ALWAYS.get(path) if value is None else value
        if path == "model.intermediate_size" and job.model.is_moe and class_of(job) == "LlamaConfig":
            # Its experts have the width of the dense layers, of which it has none then (llama_transformer.py:949).
            value = job.model.moe_intermediate_size or value
        if name is not None and value is not None:
            written = _codec(path, name).write(job, value)
            if written is not None:
                yield key(name), written

    def read(view: NativeView) -> Mapping[str, Value]:
        name = names.get(str(view.peek(_CLASS)))
        if name is None or not view.has(key(name)):
            return {}
        try:
            value = _codec(path, name).read(view.peek(key(name)))
        except (KeyError, TypeError, ValueError):
            return {}
        view.take(key(name))
        return {path: value}

    return Row(fields=(path,), flags=tuple(dict.fromkeys(key(name) for name in names.values())), emit=emit, read=read)


def _class_row() -> Row:
    path = "model.model_type"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        family = job.model.model_type
        if family is None:
            return
        require(family in _OF_FAMILY, path, "its older models are Llama's and DeepSeek's", "model.legacy=false")
        yield _CLASS, _OF_FAMILY[family]
        yield _ARCH, _BUILT[_OF_FAMILY[family]]

    def read(view: NativeView) -> Mapping[str, Value]:
        kind = view.peek(_CLASS)
        if kind not in _BUILT or view.peek(_ARCH, _BUILT[kind]) != _BUILT[kind]:
            return {}
        view.take(_CLASS)
        view.take(_ARCH)
        if kind == "DeepseekV3Config":
            return {path: "deepseek_v3"}
        experts = view.peek("moe_config.expert_num", 1)
        return {path: "mixtral" if experts > 1 else "qwen2" if view.peek(key("qkv_has_bias")) else "llama"}

    return Row(fields=(path,), flags=(_CLASS, _ARCH), emit=emit, read=read, note="Qwen2 is Llama with biases there")


# MoEConfig takes no balancing factor of 0 (modules/transformer/moe.py:144 @1.6.0); this one adds nothing in float32.
_NO_BALANCING = 1e-30
_MOE = {
    "model.num_experts_per_tok": "num_experts_chosen",
    "model.moe_intermediate_size": "moe_intermediate_size",
    "model.first_k_dense_replace": "first_k_dense_replace",
    "model.n_group": "n_group",
    "model.topk_group": "topk_group",
    "model.routed_scaling_factor": "routed_scaling_factor",
    "model.norm_topk_prob": "norm_topk_prob",
    "model.router_expert_bias": "balance_via_topk_bias",
    "moe.bias_update_rate": "topk_bias_update_rate",
    "moe.router_fusion": "use_fused_ops_topkrouter",
    "moe.grouped_gemm": "use_gmm",
    "moe.shared_expert_overlap": "moe_shared_expert_overlap",
}


def _experts() -> tuple[Row, ...]:
    number = "moe_config.expert_num"

    def written(path: str, name: str) -> Row:
        flag = f"moe_config.{name}"

        def emit(job: Job) -> Iterable[tuple[str, Value]]:
            value = value_at(job, path)
            # Only DeepSeek's class reads all of them; Llama's has its own defaults for the others.
            is_specified = value != fields()[path].default or class_of(job) == "DeepseekV3Config"
            if value is not None and is_specified:
                yield flag, value

        def read(view: NativeView) -> Mapping[str, Value]:
            moe = view.peek(number, 1) > 1
            return {path: view.take(flag)} if view.has(flag) and moe and not isinstance(view.peek(flag), dict) else {}

        return Row(fields=(path,), flags=(flag,), emit=emit, read=read, when=lambda job: job.model.is_moe)

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if job.model.num_experts is not None:
            yield number, job.model.num_experts

    def read(view: NativeView) -> Mapping[str, Value]:
        if not view.has(number):
            return {}
        count = view.take(number)
        return {"model.num_experts": count} if count > 1 else {}

    experts = Row(fields=("model.num_experts",), flags=(number,), emit=emit, read=read)
    return (experts, *(written(path, name) for path, name in _MOE.items()), *_of_llama(), _shared_experts(), _scores())


def _of_llama() -> tuple[Row, ...]:
    """Return the rows of keys whose defaults are not the job's in Llama's class with experts (Mixtral).

    That class drops tokens above a capacity of 1.1 and balances with 0.05, where a file does not say otherwise, and
    refuses the default routing policy (modules/transformer/moe.py:131-140, 925 @1.6.0).
    """

    def is_llama(view: NativeView) -> bool:
        return view.peek(_CLASS) == "LlamaConfig" and int(view.peek("moe_config.expert_num", 1)) > 1

    def emitted(flag: str, value: Callable[[Job], Value]) -> Callable[[Job], Iterable[tuple[str, Value]]]:
        return lambda job: ((flag, value(job)),) if class_of(job) == "LlamaConfig" else ()

    policy, capacity, factor = (
        f"moe_config.{name}" for name in ("routing_policy", "capacity_factor", "aux_loss_factor")
    )
    dropped, balance = "moe.capacity_factor", "moe.aux_loss_coeff"

    def read_policy(view: NativeView) -> Mapping[str, Value]:
        if is_llama(view):
            drop(view, {policy: "TopkRouterV2"})
        return {}

    def write_capacity(job: Job) -> Iterable[tuple[str, Value]]:
        value = job.moe.capacity_factor
        if class_of(job) == "LlamaConfig":
            yield capacity, -1.0 if value is None else value
        elif value is not None:
            yield capacity, value

    def read_capacity(view: NativeView) -> Mapping[str, Value]:
        if not view.has(capacity):
            return {dropped: 1.1} if is_llama(view) else {}
        value = view.peek(capacity)
        if view.peek("moe_config.expert_num", 1) <= 1 or not isinstance(value, int | float):
            return {}
        view.take(capacity)
        return {dropped: value if value > 0 else None}

    def read_factor(view: NativeView) -> Mapping[str, Value]:
        if not is_llama(view):
            return {}
        value = view.take(factor) if view.has(factor) else 0.05
        return {balance: 0.0 if value == _NO_BALANCING else value}

    def is_moe(job: Job) -> bool:
        return job.model.is_moe

    return (
        Row(
            fields=("model.num_experts",),
            flags=(policy,),
            emit=emitted(policy, lambda job: "TopkRouterV2"),
            read=read_policy,
            when=is_moe,
            derived=True,
        ),
        Row(
            fields=(dropped,),
            flags=(capacity,),
            emit=write_capacity,
            read=read_capacity,
            when=is_moe,
            note="-1 drops no token in Llama's class, whose default is 1.1",
        ),
        Row(
            fields=(balance,),
            flags=(factor,),
            emit=emitted(factor, lambda job: job.moe.aux_loss_coeff or _NO_BALANCING),
            read=read_factor,
            when=lambda job: job.model.is_moe and class_of(job) == "LlamaConfig",
            note="1e-30 for 0, which its class refuses",
        ),
    )


def _shared_experts() -> Row:
    flag, path = "moe_config.shared_expert_num", "model.shared_expert_intermediate_size"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        total, each = job.model.shared_expert_intermediate_size, job.model.moe_intermediate_size
        if class_of(job) == "LlamaConfig":
            each = each or job.model.intermediate_size
        if total:
            why = "its shared experts have the width of routed ones"
            require(bool(each) and total % (each or 1) == 0, path, why, f"{path}={each}")
            yield flag, total // (each or 1)

    def read(view: NativeView) -> Mapping[str, Value]:
        count, width = view.peek(flag), view.peek("moe_config.moe_intermediate_size")
        if view.peek(_CLASS) == "LlamaConfig":  # llama_layer.py:587 (1.3.2), LlamaFeedForwardWithMoE
            width = width or view.peek("model.model_config.intermediate_size")
        if not view.has(flag) or not isinstance(width, int):
            return {}
        view.take(flag)
        return {path: count * width if count else None}

    return Row(
        fields=(path, "model.moe_intermediate_size"),
        flags=(flag,),
        emit=emit,
        read=read,
        when=lambda job: job.model.is_moe,
    )


def _scores() -> Row:
    flag, path = "moe_config.use_gating_sigmoid", "model.scoring_func"

    def read(view: NativeView) -> Mapping[str, Value]:
        return {path: "sigmoid" if view.take(flag) else "softmax"} if view.has(flag) else {}

    return Row(
        fields=(path,),
        flags=(flag,),
        emit=lambda job: ((flag, job.model.scoring_func == "sigmoid"),),
        read=read,
        when=lambda job: job.model.is_moe,
    )


def modern(row: Row) -> Row:
    """Return the row for jobs and files of the mcore graph only."""
    return _only(row, older=False)


def older(row: Row) -> Row:
    """Return the row for jobs and files of legacy models only."""
    return _only(row, older=True)


def _only(row: Row, *, older: bool) -> Row:
    row_when, row_read = row.when, row.read

    def when(job: Job) -> bool:
        return is_legacy(job) is older and (row_when is None or row_when(job))

    def read(view: NativeView) -> Mapping[str, Value]:
        return row_read(view) if row_read is not None and legacy_file(view) is older else {}

    return replace(row, when=when, read=None if row_read is None else read)


def _shifted_labels_row() -> Row:
    """Return the row of the key that says that samples have labels of their own, shifted by one token."""
    flag = key("input_sliced_sig")

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if is_megatron(job) or is_hub(job) or is_tokenized(job):
            yield flag, True

    def read(view: NativeView) -> Mapping[str, Value]:
        drop(view, {flag: view.peek(TYPE) in (MEGATRON, HUB) or is_tokenized_file(view)})
        return {}

    note = "version 1.6 refuses token files without it (trainer/base_trainer.py:816 @1.6.0)"
    return Row(fields=("data.format",), flags=(flag,), emit=emit, read=read, derived=True, note=note)


def _checkpoint_name_row() -> Row:
    """Return the row of a key without effect in legacy classes: an empty checkpoint name."""
    flag = key("checkpoint_name_or_path")

    def read(view: NativeView) -> Mapping[str, Value]:
        drop(view, {flag: ""})
        drop(view, {flag: None})
        return {}

    return Row(fields=("model.path",), flags=(flag,), emit=lambda job: (), read=read, derived=True)


def legacy_rows() -> tuple[Row, ...]:
    """Return the rows of the sections model and moe_config of legacy models."""
    paths = dict.fromkeys(path for names in KEYS.values() for path in names)
    return tuple(
        older(row)
        for row in (
            _class_row(),
            *(_row(path) for path in paths),
            _shifted_labels_row(),
            _checkpoint_name_row(),
            *_experts(),
        )
    )
