"""Rows for parallelism, recomputation, offloading, MoE, overlap and kernels."""

import dataclasses
import re
from collections.abc import Iterable, Mapping

from backends.megatron.mapping.factories import (
    FOUR,
    THREE,
    above_one,
    explicit,
    inverted,
    listed,
    may_be_moe,
    one_of,
    only,
    renamed,
    single,
)
from backends.megatron.mapping.sharding import sharding_rows
from launcher.catalogue.versions import in_range
from launcher.job import Job, Value
from launcher.mapping.rows import NativeView, Row, choice, fixed, same


def parallel_rows() -> tuple[Row, ...]:
    """Return the rows of section `parallel`."""
    return (
        above_one("parallel.tp", "tensor_model_parallel_size"),
        above_one("parallel.pp", "pipeline_model_parallel_size"),
        same("parallel.vpp", "num_virtual_stages_per_pipeline_rank", since="3.7", until=THREE),
        same("parallel.vpp", "virtual_pipeline_model_parallel_size", since=FOUR),
        above_one("parallel.cp", "context_parallel_size"),
        choice(
            "parallel.cp_algorithm",
            "cp_comm_type",
            {"megatron": "p2p", "ulysses": "a2a", "allgather": "all_gather"},
            why="swift does not build the groups of a two-level algorithm (megatron_lm_utils.py:72 @4.6.0)",
            since="4.6",
        ),
        only(
            "parallel.cp_algorithm",
            ("megatron",),
            "this version has no option for it and runs the ring (p2p)",
            ("parallel.cp_algorithm=megatron",),
            since=FOUR,
            until="4.5.99",
        ),
        above_one("parallel.ep", "expert_model_parallel_size"),
        same("parallel.etp", "expert_tensor_parallel_size", since="3.7"),
        same("parallel.sequence_parallel", "sequence_parallel"),
        same("parallel.first_stage_layers", "decoder_first_pipeline_num_layers"),
        same("parallel.last_stage_layers", "decoder_last_pipeline_num_layers"),
        same("parallel.layout", "pipeline_model_parallel_layout", since="3.7"),
        only("parallel.layout", (), "Megatron-LM 0.12 has no explicit layout", until="3.6.99"),
        same("parallel.account_for_embedding", "account_for_embedding_in_pipeline_split", since="3.7"),
        same("parallel.account_for_loss", "account_for_loss_in_pipeline_split", since="3.7"),
        same(
            "parallel.microbatch_group_size",
            "microbatch_group_size_per_virtual_pipeline_stage",
            since="3.7",
            until=THREE,
        ),
        same("parallel.microbatch_group_size", "microbatch_group_size_per_vp_stage", since=FOUR),
        same("parallel.distributed_optimizer", "use_distributed_optimizer"),
        *sharding_rows(),
        only(
            "parallel.zero_stage",
            (),
            "this version shards optimizer states only (parallel.distributed_optimizer)",
            ("parallel.zero_stage=null",),
            until="4.5.99",
        ),
    )


def recompute_rows() -> tuple[Row, ...]:
    """Return the rows of section `recompute`."""
    return (
        one_of("recompute.granularity", "recompute_granularity", ("full", "selective")),
        same("recompute.method", "recompute_method"),
        same("recompute.num_layers", "recompute_num_layers"),
        listed("recompute.modules", "recompute_modules"),
    )


def offload_rows() -> tuple[Row, ...]:
    """Return the rows of section `offload`."""
    return (
        same("offload.optimizer", "optimizer_cpu_offload", since="3.5.0"),
        same("offload.optimizer_fraction", "optimizer_offload_fraction", since="3.5.0"),
    )


def moe_rows(version: str) -> tuple[Row, ...]:
    """Return the rows of section `moe`; they are written for MoE models only."""
    dispatchers = ("alltoall", "allgather", *(("flex",) if in_range(version, "3.5.0", None) else ()))
    if not in_range(version, FOUR, None):
        dispatchers += ("alltoall_seq",)
    return (
        one_of(
            "moe.token_dispatcher_type",
            "moe_token_dispatcher_type",
            dispatchers,
            when=may_be_moe("moe.token_dispatcher_type"),
        ),
        same("moe.grouped_gemm", "moe_grouped_gemm", when=may_be_moe("moe.grouped_gemm")),
        same("moe.permute_fusion", "moe_permute_fusion", when=may_be_moe("moe.permute_fusion"), since="3.5.0"),
        same("moe.shared_expert_overlap", "moe_shared_expert_overlap", when=may_be_moe("moe.shared_expert_overlap")),
        _load_balancing(version),
        _moe_loss(version),
        same("moe.z_loss_coeff", "moe_z_loss_coeff", when=may_be_moe("moe.z_loss_coeff")),
        same(
            "moe.bias_update_rate",
            "moe_router_bias_update_rate",
            when=may_be_moe("moe.bias_update_rate"),
            since="3.6",
            until=THREE,
        ),
        explicit(
            "moe.router_dtype",
            "moe_router_dtype",
            "none",
            {"model": "none"},
            when=may_be_moe("moe.router_dtype", absent="model"),
            since="3.5.0",
            until="3.5.99",
            note="this version routes in the model's precision unless told otherwise",
        ),
        choice(
            "moe.router_dtype",
            "moe_router_dtype",
            {"fp32": "fp32", "fp64": "fp64", "model": "none"},
            when=may_be_moe("moe.router_dtype"),
            since="3.6",
        ),
        same("moe.capacity_factor", "moe_expert_capacity_factor", when=may_be_moe("moe.capacity_factor")),
        same(
            "moe.pad_to_capacity",
            "moe_pad_expert_input_to_capacity",
            when=may_be_moe("moe.pad_to_capacity"),
            since="3.7",
        ),
        same("moe.token_drop_policy", "moe_token_drop_policy", when=may_be_moe("moe.token_drop_policy"), since="3.6"),
        same("moe.deepep", "moe_enable_deepep", when=may_be_moe("moe.deepep"), since="3.5.0"),
    )


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


def overlap_rows() -> tuple[Row, ...]:
    """Return the rows of section `overlap`."""
    return (
        same("overlap.grad_reduce", "overlap_grad_reduce"),
        same("overlap.param_gather", "overlap_param_gather"),
        same("overlap.tp_comm", "tp_comm_overlap"),
        same("overlap.p2p", "overlap_p2p_comm", since=FOUR),
        only(
            "overlap.p2p",
            (True,),
            "3.x has no option: it overlaps wherever stages have several chunks",
            ("overlap.p2p=null",),
            until=THREE,
        ),
    )


def kernel_rows() -> tuple[Row, ...]:
    """Return the rows of section `kernels`."""
    return (
        same("kernels.attention_backend", "attention_backend"),
        same("kernels.transformer_impl", "transformer_impl", until=THREE),
        only(
            "kernels.transformer_impl",
            ("transformer_engine",),
            "4.x runs Transformer Engine layers only",
            ("kernels.transformer_impl=transformer_engine",),
            since=FOUR,
        ),
        *inverted("kernels.masked_softmax_fusion", "no_masked_softmax_fusion", "masked_softmax_fusion"),
        *inverted("kernels.bias_activation_fusion", "no_bias_swiglu_fusion", "bias_activation_fusion"),
        *inverted("kernels.bias_dropout_fusion", "no_bias_dropout_fusion", "bias_dropout_fusion"),
        *inverted(
            "kernels.rope_fusion",
            "no_rope_fusion",
            "apply_rope_fusion",
            note="the default changed with the name: fused up to 3.x, not fused since 4.0",
        ),
        *inverted(
            "kernels.gradient_accumulation_fusion", "no_gradient_accumulation_fusion", "gradient_accumulation_fusion"
        ),
        same("kernels.cross_entropy_fusion", "cross_entropy_loss_fusion"),
        same("kernels.cross_entropy_fusion_impl", "cross_entropy_fusion_impl", since="3.5.0"),
        same("kernels.deterministic", "deterministic_mode", until=THREE),
        *renamed("kernels.manual_gc_interval", "manual_gc_interval", "manual_gc_steps", _garbage),
        *_npu_rows(),
    )


def _garbage(path: str, flag: str, since: str | None = None, until: str | None = None) -> Row:
    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if job.kernels.manual_gc_interval is not None:
            yield "manual_gc", True
            yield flag, job.kernels.manual_gc_interval

    def read(view: NativeView) -> Mapping[str, Value]:
        if view.peek("manual_gc") is not True:
            return {}
        view.take("manual_gc")
        return {path: view.take(flag, 0)}

    return Row(fields=(path,), flags=("manual_gc", flag), emit=emit, read=read, since=since, until=until)


def _npu_rows() -> tuple[Row, ...]:
    note = "set by 13 and 8 of ms-swift's 15 Ascend scripts: the fused CUDA kernels do not exist there"

    def unset(name: str, job: Job) -> bool:
        return job.hardware.device == "npu" and getattr(job.kernels, name) is None

    return (
        fixed(
            "gradient_accumulation_fusion",
            False,
            when=lambda job: unset("gradient_accumulation_fusion", job),
            since=FOUR,
            note=note,
        ),
        fixed(
            "masked_softmax_fusion",
            False,
            when=lambda job: unset("masked_softmax_fusion", job),
            since=FOUR,
            note=note,
        ),
    )
