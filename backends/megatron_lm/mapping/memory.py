"""Rows for recomputation and offloading to the host."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from backends.megatron_lm.mapping.factories import BEFORE_0_14, added_in_0_9, came, listed, many, when_set
from launcher.job import Job, Value
from launcher.mapping.rows import Gap, NativeView, Row, Unsupported, computed, switch, switch_off, warning

_SWAPPED_FOR_ATTENTION = ("qkv_linear", "core_attn", "attn_proj")
_RECOMPUTED = ("core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe", "shared_experts")


def recompute() -> tuple[Row, ...]:
    """Return the rows of recomputation."""
    return (
        recompute_experts(),
        when_set("recompute.granularity", "recompute-granularity"),
        _recompute_activations(),
        when_set("recompute.method", "recompute-method"),
        when_set("recompute.num_layers", "recompute-num-layers"),
        recompute_modules(_RECOMPUTED, since="0.14"),
        recompute_modules(_RECOMPUTED[:-1], until=BEFORE_0_14),
        switch("recompute.distribute_saved_activations", "distribute-saved-activations"),
    )


def recompute_experts() -> Row:
    """Return the row that reads the older flag for recomputing experts (transformer_config.py:1255 @0.16.1)."""
    flag, modules, depth = "moe-layer-recompute", "recompute-modules", "recompute-granularity"

    def read(view: NativeView) -> Mapping[str, Value]:
        if not view.peek(flag) or view.peek(depth, "selective") != "selective":  # Megatron rejects it with full
            return {}
        view.take(flag)
        given = view.peek(modules, ("core_attn",))
        parts = tuple(given) if isinstance(given, (list, tuple)) else (given,)
        view.values |= {depth: "selective", modules: (*parts, *(() if "moe" in parts else ("moe",)))}
        return {}

    note = "Read only: `--moe-layer-recompute` is a module of selective recomputation."
    return computed(("recompute.modules",), (flag,), lambda job: (), read, note=note, since="0.12")


def _recompute_activations() -> Row:
    """Return the row that reads --recompute-activations (arguments.py: validate_args)."""

    def read(view: NativeView) -> Mapping[str, Value]:
        other = view.peek("recompute-granularity", "selective") != "selective"
        if other or view.peek("recompute-activations") is not True:
            return {}
        view.take("recompute-activations")
        return {"recompute.granularity": "selective"}

    note = "Read only: `--recompute-activations` is `--recompute-granularity selective`."
    return computed(("recompute.granularity",), ("recompute-activations",), lambda job: (), read, note=note)


def recompute_modules(known: tuple[str, ...], since: str | None = None, until: str | None = None) -> Row:
    """Return the row of selectively recomputed modules, of which this version supports `known`."""
    row = listed("recompute.modules", "recompute-modules")

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        missing = [name for name in job.recompute.modules if name not in known]
        if missing:
            raise Unsupported("recompute.modules", f"it knows {', '.join(known)}, not {', '.join(missing)}")
        return row.emit(job)

    return replace(row, emit=emit, since=since, until=until)


def offload() -> tuple[Row, ...]:
    """Return the rows of offloading to the host."""
    return (
        computed(
            ("offload.modules", "offload.attention"),
            ("fine-grained-activation-offloading", "offload-modules"),
            _write_offload,
            lambda view: (
                {"offload.modules": many(view.take("offload-modules", ()))}
                if view.take("fine-grained-activation-offloading", False)
                else {}
            ),
            since="0.16",
            note="Attention as a whole is its three modules: " + ", ".join(_SWAPPED_FOR_ATTENTION) + ".",
        ),
        switch("offload.optimizer", "optimizer-cpu-offload"),
        when_set("offload.optimizer_fraction", "optimizer-offload-fraction"),
        when_set("offload.activation_layers", "cpu-offloading-num-layers", since="0.16"),
    )


def _write_offload(job: Job) -> Iterable[tuple[str, Value]]:
    known = ("core_attn", "attn_proj", "expert_fc1", "moe_act", "attn_norm", "mlp_norm", "qkv_linear")
    attention = _SWAPPED_FOR_ATTENTION if job.offload.attention else ()
    modules = tuple(dict.fromkeys((*attention, *job.offload.modules)))
    missing = [name for name in modules if name not in known]
    if missing:
        raise Unsupported("offload.modules", f"it knows {', '.join(known)}, not {', '.join(missing)}")
    if modules:
        yield "fine-grained-activation-offloading", True
        yield "offload-modules", modules


def optimizer_offload() -> tuple[Row, ...]:
    """Return the rows of how the offloaded optimizer computes, copies and pins memory."""
    return (
        switch("offload.torch_optimizer", "use-torch-optimizer-for-cpu-offload", since="0.12"),
        switch("offload.overlap_cpu_optimizer_d2h_h2d", "overlap-cpu-optimizer-d2h-h2d", since="0.12"),
        switch_off("offload.pin_cpu_grads", "no-pin-cpu-grads", since="0.12"),
        switch_off("offload.pin_cpu_params", "no-pin-cpu-params", since="0.12"),
    )


_ACTIVATION = "the activation function alone is not recomputed"
UNSUPPORTED: Mapping[str, Gap] = {
    "recompute.activation": warning(_ACTIVATION, False, works=("recompute.modules=[moe_act]",)),
    "recompute.activation_num_layers": warning(_ACTIVATION, 0),
    "recompute.norm": warning(
        "it is a module of selective recomputation", False, works=("recompute.modules=[layernorm]",)
    ),
    "recompute.norm_num_layers": warning("norms are recomputed in all layers or none", 0),
    "recompute.per_pp_rank": warning("recompute.num_layers counts per chunk", False),
    "recompute.layers_per_chunk": Gap(
        why="recompute.num_layers holds for all chunks", works=("recompute.layers_per_chunk=[]",)
    ),
    "recompute.selective_layers_per_chunk": Gap(
        why="selective recomputation holds for all layers or none", works=("recompute.selective_layers_per_chunk=[]",)
    ),
    "recompute.in_bubble": warning("pipeline bubbles stay empty", False),
    "recompute.in_advance": warning("recomputation starts in the backward pass of the layer", False),
    "recompute.communication": warning("MindFormers' switch; Megatron repeats it", False),
    "offload.optimizer_times": warning("the optimizer is offloaded as a whole"),
}
CAME_LATER: Mapping[str, Gap] = {
    "offload.attention": came(False, severity="warning"),
    "offload.modules": came(severity="warning"),
    "offload.activation_layers": came(0, severity="warning"),
}
BEFORE_0_12: Mapping[str, Gap] = {
    "offload.torch_optimizer": added_in_0_9(severity="warning"),
    "offload.overlap_cpu_optimizer_d2h_h2d": added_in_0_9(False, severity="warning"),
    "offload.pin_cpu_grads": added_in_0_9(severity="warning"),
    "offload.pin_cpu_params": added_in_0_9(severity="warning"),
}
