"""Converts SimuMax's strategy and model to fields of a job.

Source: SimuMax 1.2 (4dcaae5) simumax/core/config.py (StrategyConfig, ModelConfig), perf_llm.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from launcher.importing.simumax.rows import DROPPED, IMPLIED, MAPPED, NEAREST, Row
from launcher.importing.simumax.table import MODEL, STRATEGY, FieldRow
from launcher.job import Value

_DROPPED_BY_DEFAULT = "no effect here"
# What every run that SimuMax describes has, without a field of its own.
ASSUMED: Mapping[str, tuple[Value, str]] = {
    "kernels.transformer_impl": ("transformer_engine", "SimuMax models Transformer Engine's layers"),
    "tokenizer.make_vocab_size_divisible_by": (128, "SimuMax pads the vocabulary to 128 x tp"),
    "model.tie_word_embeddings": (False, "SimuMax has no tied embeddings"),
    "model.pretrained": (False, "SimuMax describes training from random weights"),
}


@dataclass(slots=True)
class Converted:
    """Fields of a job, and what became of each field of SimuMax.

    Attributes:
        said: status, job fields and note by name of SimuMax's field.
    """

    values: dict[str, Value] = field(default_factory=dict)
    said: dict[str, tuple[str, tuple[str, ...], str]] = field(default_factory=dict)

    def put(self, name: str, path: str, value: Value, note: str = "", *, exact: bool = True) -> None:
        """Set a field of the job from a field of SimuMax."""
        self.values[path] = value
        status, paths, before = self.said.get(name, ("", (), ""))
        before = "" if status == IMPLIED else before  # it was said to have no field
        notes = "; ".join(dict.fromkeys(text for text in (before, note) if text))
        self.said[name] = (MAPPED if exact else NEAREST, tuple(dict.fromkeys((*paths, path))), notes)

    def drop(self, name: str, note: str) -> None:
        """Record that a field has an effect in SimuMax that a job cannot express."""
        self.said[name] = (DROPPED, (), note)

    def imply(self, name: str, note: str) -> None:
        """Record that a field needs no field of a job."""
        self.said[name] = (IMPLIED, (), note)

    def rows(self, file: str, tree: Mapping[str, Any], table: Mapping[str, FieldRow]) -> list[Row]:
        """Return the row of every field that the file has, or whose default sets a field of the job."""
        made = []
        for name, row in table.items():
            status, paths, note = self.said[name]
            if name in tree or paths:
                value = tree.get(name, row.default)
                given = name in tree
                made.append(
                    Row(file=file, field=name, value=value, status=status, fields=paths, note=note, given=given)
                )
        return made


def convert(strategy: Mapping[str, Any], model: Mapping[str, Any], per_node: int) -> tuple[Converted, Converted]:
    """Return a strategy and a model as fields of a job; both files hold valid values.

    Args:
        per_node: devices of a node.
    """
    made, of_model = Converted(), Converted()
    ask = _with_defaults(strategy, STRATEGY)
    size = _with_defaults(model, MODEL)
    for name, row in STRATEGY.items():
        _simple(made, name, row, strategy)
    for name, row in MODEL.items():
        _simple(of_model, name, row, model)
    _layout(made, ask, size, per_node)
    _precision(made, ask)
    _schedule(made, ask)
    _recompute(made, ask, size)
    _kernels(made, ask)
    _attention(of_model, model, size)
    _experts(of_model, model, size)
    of_model.put("use_swiglu", "model.hidden_act", "silu" if size["use_swiglu"] else "gelu")
    of_model.imply("model_type", MODEL["model_type"].reason)
    if isinstance(size["model_name"], str):
        of_model.put("model_name", "name", re.sub(r"[^A-Za-z0-9_.-]+", "_", size["model_name"]).strip("._-") or "job")
    return made, of_model


def _with_defaults(tree: Mapping[str, Any], table: Mapping[str, FieldRow]) -> dict[str, Any]:
    return {name: tree.get(name, row.default) for name, row in table.items()}


def _simple(made: Converted, name: str, row: FieldRow, tree: Mapping[str, Any]) -> None:
    """Convert a field that is renamed or has none; those that are computed get their record later."""
    value = tree.get(name, row.default)
    if row.to:
        if value is None:
            made.imply(name, "not set")
        else:
            made.put(name, row.to, int(value) if isinstance(value, float) and value == int(value) else value)
    elif row.reason:
        (made.imply if value in (row.default, None, "auto") else made.drop)(name, row.reason)
    else:
        made.imply(name, _DROPPED_BY_DEFAULT)


def _layout(made: Converted, ask: Mapping[str, Any], size: Mapping[str, Any], per_node: int) -> None:
    world, shard = int(ask["world_size"]), int(ask["tp_size"] * ask["pp_size"] * ask["cp_size"])
    node = next(count for count in range(min(per_node, world), 0, -1) if world % count == 0)
    made.put("world_size", "cluster.nodes", world // node)
    made.put("world_size", "cluster.devices_per_node", node)
    made.put(
        "micro_batch_num",
        "batch.global_batch_size",
        int(ask["micro_batch_size"] * ask["micro_batch_num"]) * max(1, world // shard),
        "x micro_batch_size x data parallel size",
    )
    if _is_moe(size):
        made.put("ep_size", "parallel.ep", int(ask["ep_size"]))
        made.put("etp_size", "parallel.etp", int(ask["etp_size"]))
        note = "" if ask["moe_dispatcher_policy"] == "all2all" else "SimuMax itself replaces all2all-seq by all2all"
        made.put("moe_dispatcher_policy", "moe.token_dispatcher_type", "alltoall", note)
    else:
        for name in ("ep_size", "etp_size", "moe_dispatcher_policy"):
            made.imply(name, "the model has no experts")
    if ask["cp_size"] > 1:
        algorithm = {"a2a": "ulysses", "all_gather": "allgather", "p2p": "megatron"}[ask["cp_comm_type"]]
        made.put("cp_comm_type", "parallel.cp_algorithm", algorithm)
    else:
        made.imply("cp_comm_type", "cp_size is 1")
    if ask["tp_size"] > 1:
        made.put("enable_sequence_parallel", "parallel.sequence_parallel", ask["enable_sequence_parallel"])
    else:
        made.imply("enable_sequence_parallel", "tp_size is 1")
    zero = int(ask["zero_state"])
    note = f"SimuMax also divides {'gradients' if zero == 2 else 'gradients and weights'}: Megatron-LM's optimizer not"
    made.put("zero_state", "parallel.distributed_optimizer", zero > 0, note if zero > 1 else "", exact=zero < 2)
    if ask["order_of_paralielism"] != STRATEGY["order_of_paralielism"].default:
        made.drop("order_of_paralielism", "SimuMax refuses any other order than tp-cp-ep-dp-pp")


def _is_moe(size: Mapping[str, Any]) -> bool:
    return int(size["expert_num"]) > 1


def _precision(made: Converted, ask: Mapping[str, Any]) -> None:
    fp32 = ask["use_fp32_accum_grad"] and not ask["grad_reduce_in_bf16"]
    if ask["grad_reduce_in_bf16"]:
        made.put("grad_reduce_in_bf16", "precision.grad_reduce_in_fp32", fp32)
        made.imply("use_fp32_accum_grad", "grad_reduce_in_bf16 decides")
    else:
        made.put("use_fp32_accum_grad", "precision.grad_reduce_in_fp32", fp32)
        made.imply("grad_reduce_in_bf16", "use_fp32_accum_grad decides")
    if ask["fp8"]:
        note = "SimuMax names no recipe: one scale a tensor is assumed"
        made.put("fp8", "precision.fp8_format", "hybrid", note, exact=False)
        made.put("fp8", "precision.fp8_recipe", "tensorwise", note, exact=False)


def _schedule(made: Converted, ask: Mapping[str, Any]) -> None:
    if ask["interleaving_size"] > 1:
        made.put("interleaving_size", "parallel.vpp", int(ask["interleaving_size"]))
        group = ask["microbatch_group_size_per_vp_stage"]
        if group is not None:
            made.put("microbatch_group_size_per_vp_stage", "parallel.microbatch_group_size", int(group))
        made.put("pp_comm_async", "overlap.p2p", ask["pp_comm_async"])
        return
    made.imply("interleaving_size", "one chunk a stage")
    for name in ("microbatch_group_size_per_vp_stage", "pp_comm_async"):
        made.imply(name, "interleaving_size is 1: only the interleaved schedule reads it")


def _kernels(made: Converted, ask: Mapping[str, Any]) -> None:
    flash = ask["use_flash_sdp"] and not ask["use_math_sdp"]
    made.put("use_flash_sdp", "kernels.attention_backend", "flash" if flash else "unfused")
    made.put("use_math_sdp", "kernels.attention_backend", "flash" if flash else "unfused")
    if ask["cross_entropy_loss_fusion"]:
        made.put("cross_entropy_loss_fusion", "kernels.cross_entropy_fusion_impl", "te")


_SWITCHES = ("attn_recompute", "mla_rms_recompute", "mlp_recompute", "mlp_rms_recompute")
_RECOMPUTED = (
    *("enable_recompute", "recompute_granularity", "recompute_layer_num", *_SWITCHES),
    *("megatron_recompute", "megatron_recompute_modules"),
)


def _recompute(made: Converted, ask: Mapping[str, Any], size: Mapping[str, Any]) -> None:
    kind, layers = ask["recompute_granularity"], int(ask["recompute_layer_num"])
    for name in _RECOMPUTED:
        made.imply(name, "does not apply with the other recomputation fields")
    off = _off(ask, kind, layers)
    if off:
        for name in _RECOMPUTED:
            made.imply(name, off)
        made.values.pop("estimate.discard_last_output", None)
        made.imply("recompute_variance", off)
        return
    most = _layers_of_chunk(ask, int(size["layer_num"]))
    if kind == "full_block":
        made.put("recompute_granularity", "recompute.granularity", "full")
        made.put("recompute_granularity", "recompute.method", "block")
        note = f"a stage has {most} layers" if layers > most else ""
        made.put("recompute_layer_num", "recompute.num_layers", min(layers, most), note)
        made.put("enable_recompute", "recompute.granularity", "full")
        made.values.pop("estimate.discard_last_output", None)
        made.imply("recompute_variance", "SimuMax does not apply it to full_block")
        return
    modules, near = _modules(ask, size, kind)
    note = "recomputed in all layers" + (f"; SimuMax: in the first {layers} of a stage" if layers < most else "")
    exact = bool(ask["megatron_recompute"])
    source = "megatron_recompute_modules" if exact else "recompute_granularity"
    made.put("enable_recompute", "recompute.granularity", "selective")
    made.put(source, "recompute.granularity", "selective", exact=exact)
    made.put(source, "recompute.modules", tuple(modules), near, exact=exact)
    for name in _SWITCHES if kind == "selective_recompute" and not exact else ():
        if ask[name]:
            made.put(name, "recompute.modules", tuple(modules), near, exact=False)
    if exact:
        made.put("megatron_recompute", "recompute.granularity", "selective")
    if layers < most:
        made.drop("recompute_layer_num", note)
    else:
        made.imply("recompute_layer_num", note)


def _off(ask: Mapping[str, Any], kind: str | None, layers: int) -> str:
    """Return why SimuMax recomputes nothing; empty: it does."""
    if not ask["enable_recompute"]:
        return "enable_recompute is false: nothing is recomputed"
    if kind is None:
        return "recompute_granularity is not set: nothing is recomputed"
    if not layers:
        return "recompute_layer_num is 0: nothing is recomputed"
    chosen = ask["megatron_recompute"] or any(ask[name] for name in _SWITCHES)
    return "" if kind != "selective_recompute" or chosen else "no part is chosen: nothing is recomputed"


def _modules(ask: Mapping[str, Any], size: Mapping[str, Any], kind: str) -> tuple[list[str], str]:
    """Return Megatron-core's modules nearest to what SimuMax recomputes, and how they differ."""
    if ask["megatron_recompute"]:
        return [str(name) for name in ask["megatron_recompute_modules"] or ()], ""
    attention = ["core_attn", *(["mla_up_proj"] if size["attention_type"] == "mla" else [])]
    feed = [*(["mlp"] if _has_dense(size) else []), *(["moe"] if _is_moe(size) else [])]
    if kind == "sdp_only":
        return ["core_attn"], ""
    if kind == "attn_only":
        return attention, "SimuMax recomputes the projections of attention, too"
    if kind == "mlp_only":
        return feed, "SimuMax recomputes the normalisation before it, too"
    norm = ["layernorm"] if ask["mla_rms_recompute"] or ask["mlp_rms_recompute"] else []
    chosen = [*(attention if ask["attn_recompute"] else []), *norm, *(feed if ask["mlp_recompute"] else [])]
    return chosen, "nearest of Megatron-core's modules, whose borders are others"


def _has_dense(size: Mapping[str, Any]) -> bool:
    return not _is_moe(size) or int(size["dense_layers"]) > 0


def _layers_of_chunk(ask: Mapping[str, Any], layers: int) -> int:
    """Return the layers of the largest stage, or chunk of one."""
    ends = [int(ask[f"num_layers_in_{end}_pipeline_stage"] or 0) for end in ("first", "last")]
    stages = int(ask["pp_size"]) - sum(count > 0 for count in ends)
    middle = -(-max(0, layers - sum(ends)) // stages) if stages > 0 else 0
    return max(1, -(-max(middle, *ends) // int(ask["interleaving_size"])))


def _attention(made: Converted, tree: Mapping[str, Any], size: Mapping[str, Any]) -> None:
    parts: Mapping[str, str] = {
        "v_head_dim": "model.v_head_dim",
        "qk_head_dim": "model.qk_nope_head_dim",
        "qk_pos_emb_head_dim": "model.qk_rope_head_dim",
        "q_lora_rank": "model.q_lora_rank",
        "kv_lora_rank": "model.kv_lora_rank",
    }
    latent = size["attention_type"] == "mla"
    for name, path in parts.items():
        if latent and size[name] is not None:
            made.put(name, path, int(size[name]))
        else:
            made.imply(name, "not set" if latent else "attention_type is not mla")
    if latent:
        made.put("attention_type", "model.qk_layernorm", True, "both compressed projections are normalised")
        made.imply("head_size", "attention_type is mla: SimuMax does not read it")
        return
    made.imply("attention_type", "grouped or multi-head attention, by kv_head_num")
    if size["head_size"] is not None:
        made.put("head_size", "model.head_dim", int(size["head_size"]))
    elif "head_size" not in tree:
        made.imply("head_size", "hidden_size / head_num; SimuMax itself needs it")


def _experts(made: Converted, tree: Mapping[str, Any], size: Mapping[str, Any]) -> None:
    names = ("topk", "moe_ffn_hidden_size", "moe_shared_expert_intermediate_size", "dense_layers", "expert_num")
    more = ("moe_pad_expert_input_to_capacity", "capacity", "group_linear_mode")
    if not _is_moe(size):
        for name in (*names, *more):
            made.imply(name, "the model has no experts")
        return
    put: Callable[[str, str, Value], None] = made.put
    put("expert_num", "model.num_experts", int(size["expert_num"]))
    put("topk", "model.num_experts_per_tok", int(size["topk"] or 1))
    put("moe_ffn_hidden_size", "model.moe_intermediate_size", size["moe_ffn_hidden_size"] or size["intermediate_size"])
    if size["moe_shared_expert_intermediate_size"] is not None:
        shared = int(size["moe_shared_expert_intermediate_size"])
        put("moe_shared_expert_intermediate_size", "model.shared_expert_intermediate_size", shared)
    put("dense_layers", "model.first_k_dense_replace", int(size["dense_layers"]))
    put("group_linear_mode", "moe.grouped_gemm", size["group_linear_mode"] == "parallel")
    put("group_linear_mode", "moe.permute_fusion", True)
    if tree.get("moe_pad_expert_input_to_capacity") and tree.get("capacity") is not None:
        put("moe_pad_expert_input_to_capacity", "moe.pad_to_capacity", True)
        put("capacity", "moe.capacity_factor", float(size["capacity"]))
        return
    for name in ("moe_pad_expert_input_to_capacity", "capacity"):
        made.imply(name, "tokens spread evenly, which the estimate assumes, too; a capacity would drop tokens")
