"""MindSpeed-LLM mapping rows for LoRA, whose layers of multi-head latent attention have other names there."""

from collections.abc import Iterable, Mapping

from backends.megatron_lm.mapping.factories import chosen, many, when_set
from launcher.job import Job, Value
from launcher.job.task import LORA_ALPHA
from launcher.mapping.rows import NativeView, Row, Unsupported, computed

_TARGETS = "lora.target_modules"
_QKV, _KEY_VALUE_DOWN = "linear_qkv", "linear_kv_down_proj"
_UP = ("linear_q_up_proj", "linear_kv_up_proj")
_OUT_AND_MLP = ("linear_proj", "linear_fc1", "linear_fc2")
ALL_LAYERS = (_QKV, *_OUT_AND_MLP)
"""Layers of `all-linear` in a model without multi-head latent attention."""
_DOWN = dict.fromkeys(("linear_q_down_proj", "linear_q_proj", _KEY_VALUE_DOWN), _QKV)
_OLD_NAMES = {"linear_q_up_proj": "linear_qb", "linear_kv_up_proj": "linear_kvb"}


def has_lora(job: Job) -> bool:
    """Return whether the job trains adapters."""
    return job.lora.rank is not None


def lora(old: bool) -> tuple[Row, ...]:
    """Return the rows of LoRA, which the target modules enable; `old`: version 2.1.0."""
    return (
        computed(
            ("lora.rank",),
            ("lora-r",),
            lambda job: (("lora-r", job.lora.rank),),
            lambda view: {"lora.rank": view.take("lora-r", 16)} if view.peek("lora-target-modules") else {},
            when=has_lora,
        ),
        computed(("lora.alpha",), ("lora-alpha",), _write_alpha, _read_alpha, when=has_lora),
        computed(
            (_TARGETS,),
            ("lora-target-modules",),
            lambda job: (("lora-target-modules", _written(job, old)),),
            lambda view: _read_targets(view, old),
            when=has_lora,
            note="LoRA is on if and only if there are target modules (posttrain/lora/utils.py is_enable_lora). Both "
            "down projections of multi-head latent attention are one layer, linear_qkv (multi_latent_attention.py).",
        ),
        when_set("lora.load", "lora-load", when=has_lora),
    )


def quantization() -> Row:
    """Return the row of QLoRA, which versions before 26.1.0 have."""
    return chosen("lora.quantization", "qlora", {"nf4": True}, why="its QLoRA is of 4 bits (nf4)")


def _write_alpha(job: Job) -> Iterable[tuple[str, Value]]:
    alpha = LORA_ALPHA if job.lora.alpha is None else job.lora.alpha
    if alpha != int(alpha):
        raise Unsupported("lora.alpha", "--lora-alpha takes whole numbers", (f"lora.alpha={round(alpha)}",))
    yield "lora-alpha", int(alpha)


def _read_alpha(view: NativeView) -> Mapping[str, Value]:
    return {"lora.alpha": view.take("lora-alpha", 32)} if view.peek("lora-target-modules") else {}


def layer_names(targets: Iterable[str], old: bool) -> tuple[str, ...]:
    """Return MindSpeed-LLM's names of layers of multi-head latent attention in Megatron-core's names, each once."""
    names = {**_DOWN, **(_OLD_NAMES if old else {})}
    return tuple(dict.fromkeys(names.get(name, name) for name in targets))


def _written(job: Job, old: bool) -> tuple[str, ...]:
    """Return the names of the adapted layers in MindSpeed-LLM."""
    targets = job.lora.target_modules
    every = not targets or "all-linear" in targets
    if not job.model.is_mla:
        return ALL_LAYERS if every else targets
    down = (_query_down(job.model.q_lora_rank), _KEY_VALUE_DOWN)
    if every:
        targets = (*down, *(_UP if job.model.q_lora_rank is not None else _UP[1:]), *_OUT_AND_MLP)
    missing = [name for name in down if name not in targets]
    if len(missing) == 1:
        works = ",".join((*targets, *missing))
        raise Unsupported(_TARGETS, f"{' and '.join(down)} are one layer, linear_qkv", (f"{_TARGETS}=[{works}]",))
    return layer_names(targets, old)


def _read_targets(view: NativeView, old: bool) -> Mapping[str, Value]:
    if not view.has("lora-target-modules"):
        return {}
    names = many(view.take("lora-target-modules"))
    if not view.peek("multi-latent-attention"):
        return {_TARGETS: names}
    back = {native: name for name, native in _OLD_NAMES.items()} if old else {}
    down = (_query_down(view.peek("q-lora-rank")), _KEY_VALUE_DOWN)
    parts = (down if name == _QKV else (back.get(name, name),) for name in names)
    return {_TARGETS: tuple(part for each in parts for part in each)}


def _query_down(rank: Value) -> str:
    """Return Megatron-core's name of the first query projection."""
    return "linear_q_proj" if rank is None else "linear_q_down_proj"
