"""Renamed arguments of MindSpeed-LLM 2.1.0 (Megatron core 0.8)."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from backends.megatron_lm.mapping import moe
from backends.megatron_lm.mapping.factories import chosen, reworded, when_set
from backends.megatron_lm.mapping.model import latent_attention
from backends.mindspeed.mapping import model
from launcher.job import Job, Value
from launcher.mapping.rows import NativeView, Row, Unsupported, computed, fixed, switch

_NEWER = ("backend.version=26.1.0",)


def use_mcore() -> Row:
    """Return the row of the switch that every job needs in 2.1.0 only."""
    return fixed("use-mcore-models", True, note="Without it 2.1.0 builds its legacy models.")


def aliases() -> Row:
    """Return the row that reads 2.1.0's name of multi-latent attention as the current one."""
    return reworded({"multi-head-latent-attention": "multi-latent-attention"}, {})


def replaced_rows() -> dict[str, tuple[Row, ...]]:
    """Return the rows of 2.1.0 by the canonical field whose Megatron rows they replace."""
    latent = {row.fields[0]: row for row in latent_attention()}
    return {
        "model.kv_lora_rank": (_renamed(latent["model.kv_lora_rank"], "multi-latent-attention"),),
        "model.q_lora_rank": (_written_with_mla("model.q_lora_rank", "q-lora-rank"),),
        "model.qk_nope_head_dim": (_written_with_mla("model.qk_nope_head_dim", "qk-nope-head-dim"),),
        "model.qk_rope_head_dim": (_written_with_mla("model.qk_rope_head_dim", "qk-rope-head-dim"),),
        "model.v_head_dim": (_written_with_mla("model.v_head_dim", "v-head-dim"),),
        "model.shared_expert_intermediate_size": (shared_experts(),),
        "model.shared_expert_gate": (switch("model.shared_expert_gate", "shared-expert-gate", when=moe.is_moe),),
        "model.norm_topk_prob": (model.routing_scores(),),
        "moe.router_dtype": (router_dtype(),),
        "moe.load_balancing_type": (balancing(),),
        "moe.token_dispatcher_type": (dispatcher(),),
        "optimizer.type": (chosen("optimizer.type", "optimizer", {"adam": None, "sgd": "sgd"}, "adam"),),
        "precision.grad_reduce_in_fp32": (reduction(),),
        "checkpoint.format": (checkpoint_format(),),
        "tokenizer.trust_remote_code": (switch("tokenizer.trust_remote_code", "trust-remote-code"),),
        "model.rope_scaling.type": (_old_yarn(model.rope_scaling()),),
    }


# Megatron-LM's arguments to their names in 2.1.0. Source: deprecated_args.py @26.1.0.
NAMES = {
    "deterministic-mode": "use-deter-comp",
    "moe-ffn-hidden-size": "moe-intermediate-size",
    "moe-router-num-groups": "n-group",
    "moe-router-group-topk": "topk-group",
    "moe-router-topk-scaling-factor": "routed-scaling-factor",
}
# Names in 2.1.0 of arguments that 26.1.0 renamed. Source: deprecated_args.py @26.1.0.
_OLD_NAMES = {
    "multi-latent-attention": "multi-head-latent-attention",
    "beta-fast": "rope-scaling-beta-fast",
    "beta-slow": "rope-scaling-beta-slow",
}


def _renamed(row: Row, *flags: str) -> Row:
    """Return a row that writes `flags` under their 2.1.0 names and reads both names."""

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        for flag, value in row.emit(job):
            yield (_OLD_NAMES[flag] if flag in flags else flag), value

    def read(view: NativeView) -> Mapping[str, Value]:
        for flag in flags:
            if view.has(_OLD_NAMES[flag]):
                view.values[flag] = view.take(_OLD_NAMES[flag])
        return row.read(view) if row.read is not None else {}

    names = tuple(_OLD_NAMES[flag] if flag in flags else flag for flag in row.flags)
    return replace(row, emit=emit, read=read, flags=names)


def _old_yarn(row: Row) -> Row:
    return _renamed(row, "beta-fast", "beta-slow")


def _written_with_mla(path: str, flag: str) -> Row:
    """Return the row of a size of latent attention; it has no default in 2.1.0."""
    return when_set(path, flag, when=lambda job: job.model.is_mla)


def shared_experts() -> Row:
    """Return the row of the shared expert's width, in units of a routed expert's."""
    path = "model.shared_expert_intermediate_size"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        shared, width = job.model.shared_expert_intermediate_size, job.model.moe_intermediate_size
        if shared is None:
            return
        if not width or shared % width:
            raise Unsupported(path, f"it is counted in experts of {width}, and {shared} is no multiple", _NEWER)
        yield "n-shared-experts", shared // width

    def read(view: NativeView) -> Mapping[str, Value]:
        width = view.peek("moe-intermediate-size")
        return {path: view.take("n-shared-experts") * width} if view.has("n-shared-experts") and width else {}

    return computed((path, "model.moe_intermediate_size"), ("n-shared-experts",), emit, read, when=moe.is_moe)


def router_dtype() -> Row:
    """Return the row of the router's precision."""

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if job.moe.router_dtype == "fp64":
            raise Unsupported("moe.router_dtype", "the router computes in fp32 at most", ("moe.router_dtype=fp32",))
        if job.moe.router_dtype == "fp32":
            yield "router-gating-in-fp32", True

    def read(view: NativeView) -> Mapping[str, Value]:
        if not view.peek("num-experts"):
            return {}
        return {"moe.router_dtype": "fp32" if view.take("router-gating-in-fp32", False) else "model"}

    return computed(("moe.router_dtype",), ("router-gating-in-fp32",), emit, read, when=moe.is_moe)


def balancing() -> Row:
    """Return the row of load balancing; sigmoid scores and expert bias exist without an auxiliary loss only."""
    path, flag = "moe.load_balancing_type", "moe-router-load-balancing-type"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        kind = job.moe.load_balancing_type
        if kind not in ("aux_loss", "seq_aux_loss", "none"):
            raise Unsupported(path, "it knows aux_loss, seq_aux_loss and none", (f"{path}=aux_loss",))
        if kind == "aux_loss" and (job.model.scoring_func == "sigmoid" or job.model.router_expert_bias):
            why = "aux_loss routes by softmax, without bias and groups (moe/router.py @2.1.0)"
            raise Unsupported(path, why, (f"{path}=seq_aux_loss", f"{path}=none"))
        yield flag, "aux_loss" if kind == "aux_loss" else ("noaux_tc" if job.model.router_expert_bias else "none")
        if kind == "seq_aux_loss":
            yield "seq-aux", True

    def read(view: NativeView) -> Mapping[str, Value]:
        kind = view.peek(flag, "aux_loss")
        named = "noaux_tc" if view.peek("moe-router-enable-expert-bias") else "none"
        if not view.peek("num-experts") or kind not in ("aux_loss", named):
            return {}
        view.take(flag)
        if kind == "aux_loss":
            return {path: "aux_loss"}
        return {path: "seq_aux_loss" if view.take("seq-aux", False) else "none"}

    return computed(
        (path, "model.scoring_func", "model.router_expert_bias"), (flag, "seq-aux"), emit, read, when=moe.is_moe
    )


def dispatcher() -> Row:
    """Return the row of the token dispatcher."""
    path, flag, known = "moe.token_dispatcher_type", "moe-token-dispatcher-type", ("alltoall", "allgather")

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if job.moe.token_dispatcher_type not in known:
            raise Unsupported(path, f"it knows {' and '.join(known)}", (f"{path}=alltoall",))
        yield flag, job.moe.token_dispatcher_type

    def read(view: NativeView) -> Mapping[str, Value]:
        return {path: view.take(flag, "allgather")} if view.peek("num-experts") else {}

    return computed((path,), (flag,), emit, read, when=moe.is_moe)


def reduction() -> Row:
    """Return the row of the gradient reduction precision: with bf16 always fp32 in core 0.8."""

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        path = "precision.grad_reduce_in_fp32"
        if job.precision.grad_reduce_in_fp32:
            yield "accumulate-allreduce-grads-in-fp32", True
        elif job.precision.grad_reduce_in_fp32 is False and job.precision.dtype == "bf16":
            raise Unsupported(path, "with bf16, gradients are always reduced in fp32", (f"{path}=true",))

    def read(view: NativeView) -> Mapping[str, Value]:
        given = view.take("accumulate-allreduce-grads-in-fp32", False)
        return {"precision.grad_reduce_in_fp32": True} if given else {}

    return computed(
        ("precision.grad_reduce_in_fp32", "precision.dtype"), ("accumulate-allreduce-grads-in-fp32",), emit, read
    )


def checkpoint_format() -> Row:
    """Return the row of the checkpoint format: a switch in core 0.8, which writes plain torch files without it."""
    path, flags = "checkpoint.format", ("use-dist-ckpt", "dist-ckpt-format")
    sharded = ("torch_dist", "zarr")

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        wanted = job.checkpoint.format
        if wanted not in (None, "torch", *sharded):
            raise Unsupported(path, "it writes torch, torch_dist and zarr", (f"{path}=torch",))
        if wanted in sharded:
            yield flags[0], True
        if wanted == "zarr":
            yield flags[1], wanted

    def read(view: NativeView) -> Mapping[str, Value]:
        return {path: view.take(flags[1], sharded[0])} if view.take(flags[0], False) else {}

    return computed((path,), flags, emit, read)
