"""Rows for MoE training that differ from Megatron-LM's; they are written for MoE models only."""

import dataclasses
import re
from collections.abc import Iterable, Mapping

from backends.megatron.mapping.factories import explicit, may_be_moe, one_of, single
from launcher.catalogue.versions import in_range
from launcher.job import Job, Value
from launcher.mapping.rows import NativeView, Row, choice


def rows(version: str) -> Mapping[str, tuple[Row, ...]]:
    """Return the rows by the canonical field whose Megatron-LM rows they replace."""
    return {
        "moe.load_balancing_type": (_load_balancing(version),),
        "moe.aux_loss_coeff": (_moe_loss(version),),
        "moe.router_dtype": (
            explicit(
                "moe.router_dtype",
                "moe_router_dtype",
                "none",
                {"model": "none"},
                when=may_be_moe("moe.router_dtype", absent="model"),
                since="3.5.0",
                until="3.5.99",
                note="this version routes in the model's precision by default",
            ),
            choice(
                "moe.router_dtype",
                "moe_router_dtype",
                {"fp32": "fp32", "fp64": "fp64", "model": "none"},
                when=may_be_moe("moe.router_dtype"),
                since="3.6",
            ),
        ),
    }


# Names of models that default to seq_aux_loss, and of dense models distilled from them.
_SEQUENCE_BALANCED = re.compile(r"deepseek-(v[23]|r1|moe)|kimi-k2|moonlight", re.IGNORECASE)


_DENSE = re.compile(r"distill|qwen|llama", re.IGNORECASE)


def _load_balancing(version: str) -> Row:
    names = ["aux_loss", "seq_aux_loss", "sinkhorn", "none"]
    if in_range(version, "3.7", None):
        names.insert(2, "global_aux_loss")
    path, flag = "moe.load_balancing_type", "moe_router_load_balancing_type"
    row = one_of(
        path,
        flag,
        tuple(names),
        when=may_be_moe(path),
        note="without it DeepSeek models take seq_aux_loss (mcore_bridge/config/parser.py @1.6.5)",
    )

    def read(view: NativeView) -> Mapping[str, Value]:
        named = str(view.peek("model")).rpartition("/")[2]
        if view.peek(flag) is None and _SEQUENCE_BALANCED.match(named) and not _DENSE.search(named):
            return {path: "seq_aux_loss"}
        return row.read(view) if row.read is not None else {}

    # Since 3.6 the default depends on the model (swift/megatron/model/gpt/config.py:25 @3.6.4); before, it is aux_loss.
    return dataclasses.replace(row, read=read) if in_range(version, "3.6", None) else row


# router_aux_loss_coef in config.json, by model name; it is 0 for Qwen3-Coder.
_CONFIG_LOSSES = ((re.compile(r"qwen[23]-(?!coder)\d+b-a\d|qwen1\.5-moe|ernie-4\.5-.*-a\d", re.IGNORECASE), 0.001),)


def _config_loss(view: NativeView) -> float | None:
    """Return the value that versions up to 3.7 read from config.json (swift/megatron/model/config.py:30 @3.7.0)."""
    for flag in ("model", "load"):
        name = str(view.peek(flag) or "").rstrip("/").rpartition("/")[2]
        for pattern, value in _CONFIG_LOSSES:
            if pattern.match(name):
                return value
    return None


def _moe_loss(version: str) -> Row:
    of_config = in_range(version, None, "3.7.99")

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        yield "moe_aux_loss_coeff", job.moe.aux_loss_coeff

    def read(view: NativeView) -> Mapping[str, Value]:
        value = single(view.peek("moe_aux_loss_coeff"))
        if value is None and of_config and _config_loss(view) is not None:
            return {"moe.aux_loss_coeff": _config_loss(view)}
        if value is None or isinstance(value, (list, tuple)):  # one coefficient for each of several balancing losses
            return {}
        view.take("moe_aux_loss_coeff")
        return {"moe.aux_loss_coeff": value}

    return Row(
        fields=("moe.aux_loss_coeff",),
        flags=("moe_aux_loss_coeff",),
        emit=emit,
        read=read,
        when=may_be_moe("moe.aux_loss_coeff"),
        note="up to 3.7 the default is config.json's router_aux_loss_coef, later 0",
    )
