"""Rows for Mamba-2 and hybrid Mamba-attention models, which pretrain_mamba.py trains."""

from collections.abc import Iterable, Mapping
from typing import Any

from backends.megatron_lm.mapping.factories import BEFORE_0_17, came, many, when_set
from launcher.job import Job, Value, value_at
from launcher.job.model import MAMBA
from launcher.mapping.rows import Gap, NativeView, Row, Unsupported, computed, switch

SPEC = ("megatron.core.models.mamba.mamba_layer_specs", "mamba_stack_spec")
# Arguments of MambaMixer that no option sets. Source: megatron/core/ssm/mamba_mixer.py:149-164 @core_v0.16.1
_BUILT_WITH = ("mamba_d_conv", "mamba_expand")


def is_mamba(job: Job) -> bool:
    """Return whether the model has Mamba layers."""
    return bool(job.model.mamba)


def stack(spec: tuple[str, str] = SPEC) -> Row:
    """Return the row of the layer specification that pretrain_mamba.py requires."""

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if job.model.mamba:
            yield "spec", spec

    def read(view: NativeView) -> Mapping[str, Value]:
        if not view.has("spec") or many(view.peek("spec")) != spec:
            return {}
        view.take("spec")
        return {"model.mamba": True}

    return computed(("model.mamba",), ("spec",), emit, read, note="pretrain_mamba.py takes its layers from it.")


def size(name: str, flag: str, parser_default: Value = None, spec: tuple[str, str] = SPEC, **row: Any) -> Row:
    """Return the row of a size of Mamba layers, written for every Mamba model.

    Args:
        name: field below `model`.
        flag: argument.
        parser_default: default of the backend's parser; None: the common default.
        spec: layer specification that identifies a Mamba model.
    """
    path, fallback = f"model.{name}", MAMBA[name]

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        given = value_at(job, path)
        if given is not None or is_mamba(job):
            yield flag, fallback if given is None else given

    def read(view: NativeView) -> Mapping[str, Value]:
        mamba = many(view.peek("spec")) == spec
        return (
            {path: view.take(flag, fallback if parser_default is None else parser_default)}
            if mamba or view.has(flag)
            else {}
        )

    note = f"Written with model.mamba: {fallback} unless set" + (
        f"; the parser's own is {parser_default}." if parser_default else "."
    )
    return computed((path, "model.mamba"), (flag,), emit, read, note=note, **row)


def sizes() -> tuple[Row, ...]:
    """Return the rows of states, heads and groups, and of the hybrid layer pattern."""
    return (
        size("mamba_state_dim", "mamba-state-dim", since="0.12"),
        size("mamba_head_dim", "mamba-head-dim", since="0.12"),
        size("mamba_num_groups", "mamba-num-groups", since="0.12"),
        when_set("model.mamba_num_heads", "mamba-num-heads", since="0.13"),
        when_set("model.hybrid_attention_ratio", "hybrid-attention-ratio", until=BEFORE_0_17),
        when_set("model.hybrid_mlp_ratio", "hybrid-mlp-ratio", until=BEFORE_0_17),
        when_set("model.hybrid_override_pattern", "hybrid-override-pattern", until=BEFORE_0_17),
        layer_pattern(),
        switch("model.is_hybrid_model", "is-hybrid-model", since="0.12"),
    )


def layer_pattern() -> Row:
    """Return the row of the pattern since 0.17, which alone decides the layers: without it a model has none.

    Source: megatron/core/models/mamba/mamba_model.py:180-191, megatron/training/arguments.py:592-604 @core_v0.17.1.
    """
    path, flag, old = "model.hybrid_override_pattern", "hybrid-layer-pattern", "hybrid-override-pattern"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        pattern = job.model.hybrid_override_pattern
        if pattern is None and is_mamba(job) and job.model.num_hidden_layers:
            pattern = "M" * job.model.num_hidden_layers
        if pattern is not None:
            yield flag, pattern

    def read(view: NativeView) -> Mapping[str, Value]:
        pattern = view.take(flag if view.has(flag) else old) if view.has(flag) or view.has(old) else None
        if pattern is None or (set(str(pattern)) == {"M"} and len(str(pattern)) == view.peek("num-layers")):
            return {}
        return {path: pattern}

    note = "Written with model.mamba: M for every layer unless set. --hybrid-override-pattern is its old name."
    fields = (path, "model.mamba", "model.num_hidden_layers")
    return computed(fields, (flag, old), emit, read, note=note, since="0.17")


def constants() -> tuple[Row, ...]:
    """Return the rows of the constants of Megatron's Mamba layers, and of the chunk size, which changes no value."""
    tiles = Row(fields=("model.mamba_chunk_size",), flags=(), emit=lambda job: ())
    return (*(_constant(name) for name in _BUILT_WITH), tiles)


def _constant(name: str) -> Row:
    path, built = f"model.{name}", MAMBA[name]

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if value_at(job, path) not in (None, built):
            raise Unsupported(path, f"its Mamba layers are built with {built}", (f"{path}={built}",))
        return ()

    return Row(fields=(path,), flags=(), emit=emit, when=is_mamba)


_PATTERN = Gap(
    why="core 0.17 reads the kinds of layers from a pattern only",
    neutral=(0.0,),
    works=("model.hybrid_override_pattern=M-M*",),
)
GONE: Mapping[str, Gap] = {"model.hybrid_attention_ratio": _PATTERN, "model.hybrid_mlp_ratio": _PATTERN}
CAME_LATER: Mapping[str, Gap] = {"model.mamba_num_heads": came()}
