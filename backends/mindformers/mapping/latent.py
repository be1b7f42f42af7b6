"""Rows of multi-head latent attention."""

from collections.abc import Mapping

from backends.mindformers.mapping.support import aliased, drop, has_latent, is_file, is_mla, key, written_class
from launcher.job import Value
from launcher.mapping.rows import NativeView, Row


def _latent() -> Row:
    flag = key("multi_latent_attention")

    def read(view: NativeView) -> Mapping[str, Value]:
        if has_latent(view):
            drop(view, {flag: True})
        return {}

    return Row(
        fields=("model.kv_lora_rank",),
        flags=(flag,),
        emit=lambda job: ((flag, True),),
        read=read,
        when=is_mla,
        derived=True,
    )


def _latent_layout() -> Row:
    flag, path = key("mla_qkv_concat"), "kernels.qkv_concat"

    def read(view: NativeView) -> Mapping[str, Value]:
        if not has_latent(view) or not (view.has(flag) or is_file(view)):
            return {}
        return {path: True if view.take(flag, True) else None}

    return Row(
        fields=(path,),
        flags=(flag,),
        emit=lambda job: ((flag, bool(job.kernels.qkv_concat)),),
        read=read,
        when=is_mla,
        note="false in every DeepSeek example: a layout, no arithmetic; MindFormers' own default is true",
    )


def _query_rank() -> Row:
    flag = key("q_lora_rank")

    def read(view: NativeView) -> Mapping[str, Value]:
        if view.has(flag):
            return {"model.q_lora_rank": view.take(flag)}
        return {"model.q_lora_rank": 1536} if written_class(view) == "deepseek_v3" else {}

    return Row(
        fields=("model.q_lora_rank",),
        flags=(flag,),
        emit=lambda job: ((flag, job.model.q_lora_rank),),
        read=read,
        when=is_mla,
        note="null where the query is not compressed: DeepseekV3Config's own default is 1536",
    )


def latent_attention_rows() -> tuple[Row, ...]:
    """Return the rows of multi-head latent attention."""
    return (
        _latent(),
        _latent_layout(),
        _query_rank(),
        aliased("model.kv_lora_rank", "kv_lora_rank", when=is_mla),
        aliased("model.qk_nope_head_dim", "qk_nope_head_dim", "qk_head_dim", when=is_mla),
        aliased("model.qk_rope_head_dim", "qk_rope_head_dim", "qk_pos_emb_head_dim", when=is_mla),
        aliased("model.v_head_dim", "v_head_dim", when=is_mla),
    )
