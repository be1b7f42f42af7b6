"""MindSpeed-LLM mapping rows for Qwen3-Next, DeepSeek-V3.2, GLM-5, DeepSeek-V4 and Mamba."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from backends.megatron_lm.mapping.attention_variants import (
    INTERVAL,
    OF_V4,
    VARIANT,
    indexer,
    is_linear,
    sized,
    variant_of,
)
from backends.megatron_lm.mapping.factories import chosen, listed, many, valued, when_set
from backends.megatron_lm.mapping.positions import has_rope, kind_of_positions
from backends.megatron_lm.mapping.state_space import size, stack
from backends.mindspeed.versions import accepts, came_with
from launcher.job import Job, Value
from launcher.job.model import LINEAR_HEADS
from launcher.mapping.rows import Gap, NativeView, Row, Unsupported, computed, switch

_SPECS = "mindspeed_llm.tasks.models.spec."
MAMBA_SPEC = (f"{_SPECS}mamba_spec", "layer_spec")
_SPEC_OF = {"gated_delta_net": "qwen3_next_spec", "dsv4_hybrid": "deepseek4_spec"}
_MTP_SPEC = (f"{_SPECS}deepseek4_spec", "mtp_spec")
# The argument without which a version has no such attention.
_SWITCHES = {"gated_delta_net": "full-attention-interval", "dsa": "enable-dsa-indexer", "dsv4_hybrid": "kv-compress"}


def replaced_rows(version: str) -> dict[str, tuple[Row, ...]]:
    """Return the rows since 2.2.0 by the canonical field whose Megatron rows they replace."""
    return {
        VARIANT: (_variant(version), _layers(), _predicting_layers(), *_linear(), *_sparse(), *_compressed()),
        "model.partial_rotary_factor": (_partial_rotation(),),
        "model.position_embedding": (_positions(),),
        "model.norm_zero_centered": (zero_centered_norms(),),
        "model.swiglu_limit": (_swiglu_limit(),),
        **_state_space(),
    }


def added_rows() -> tuple[Row, ...]:
    """Return the rows since 2.2.0 of fields that Megatron-LM does not have."""
    scalar = {"adam": "adam", "lion": "lion"}
    return (
        switch("kernels.use_fused_mhc", "use-fused-mhc"),
        when_set("optimizer.muon_coefficient_type", "muon-coefficient-type"),
        chosen("optimizer.muon_scalar_optimizer", "muon-scalar-optimizer", scalar),
    )


def _state_space() -> dict[str, tuple[Row, ...]]:
    """Return the rows of Mamba's sizes that Megatron has no argument for; linear attention has its own convolution."""
    convolution = _unless_linear(size("mamba_d_conv", "mamba-d-conv", spec=MAMBA_SPEC), {})
    width = _unless_linear(size("mamba_expand", "mamba-expand", 1, spec=MAMBA_SPEC), {"mamba-expand": 1})
    return {
        "model.mamba": (stack(MAMBA_SPEC),),
        "model.mamba_state_dim": (size("mamba_state_dim", "mamba-state-dim", spec=MAMBA_SPEC),),
        "model.mamba_head_dim": (size("mamba_head_dim", "mamba-head-dim", spec=MAMBA_SPEC),),
        "model.mamba_num_groups": (size("mamba_num_groups", "mamba-num-groups", spec=MAMBA_SPEC),),
        "model.mamba_d_conv": (convolution,),
        "model.mamba_expand": (width,),
        "model.mamba_chunk_size": (when_set("model.mamba_chunk_size", "mamba-chunk-size"),),
    }


def _unless_linear(row: Row, without_effect: Mapping[str, Value]) -> Row:
    """Return the row for jobs without linear attention; with it, values of `without_effect` are read as none."""

    def read(view: NativeView) -> Mapping[str, Value]:
        if native_variant(view) != "gated_delta_net":
            return row.read(view) if row.read is not None else {}
        for flag, value in without_effect.items():
            if view.peek(flag) == value:
                view.take(flag)
        return {}

    return replace(row, read=read, when=lambda job: not is_linear(job))


def replaced_rows_2_1() -> dict[str, tuple[Row, ...]]:
    """Return the rows of 2.1.0, where Mamba's arguments have other names."""
    return {
        **_state_space(),
        "model.mamba_state_dim": (size("mamba_state_dim", "mamba-d-state", spec=MAMBA_SPEC),),
        "model.mamba_head_dim": (size("mamba_head_dim", "mamba-headdim", 80, spec=MAMBA_SPEC),),
        "model.mamba_num_groups": (size("mamba_num_groups", "mamba-ngroups", 1, spec=MAMBA_SPEC),),
        "model.norm_zero_centered": (zero_centered_norms(),),
        "recompute.modules": (recompute_experts(),),
    }


def native_variant(view: NativeView) -> str | None:
    """Return the attention variant that the arguments select."""
    if view.peek("enable-dsa-indexer"):
        return "dsv4_hybrid" if view.peek("kv-compress") else "dsa"
    return "gated_delta_net" if view.peek("full-attention-interval") else None


def _variant(version: str) -> Row:
    """Return the row of the attention variant, with the arguments that the version has."""
    lacking = {kind: flag for kind, flag in _SWITCHES.items() if not accepts(version, flag)}

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        kind, interval = variant_of(job), job.model.full_attention_interval
        if kind in lacking:
            first = came_with(version, (lacking[kind],))
            raise Unsupported(VARIANT, f"{kind} came with {first}", (f"backend.version={first}",))
        if kind == "gated_delta_net" and interval is None:
            raise Unsupported(VARIANT, "it needs the interval of layers that attend fully", (f"{INTERVAL}=4",))
        if interval is not None:
            yield "full-attention-interval", interval
        if kind in ("dsa", "dsv4_hybrid"):
            yield "enable-dsa-indexer", True
        if kind == "dsv4_hybrid":
            yield "kv-compress", True

    def read(view: NativeView) -> Mapping[str, Value]:
        kind = native_variant(view)
        if kind is None:
            return {}
        if kind == "gated_delta_net":
            return {VARIANT: kind, INTERVAL: view.take("full-attention-interval")}
        view.take("enable-dsa-indexer")
        view.take("kv-compress")
        return {VARIANT: kind}

    flags = tuple(flag for flag in _SWITCHES.values() if flag not in lacking.values())
    return computed((VARIANT, INTERVAL), flags, emit, read)


def _layers() -> Row:
    """Return the row of the layer specification of Qwen3-Next and DeepSeek-V4."""

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        module = _SPEC_OF.get(variant_of(job) or "")
        if module is not None:
            yield "spec", (f"{_SPECS}{module}", "layer_spec")

    def read(view: NativeView) -> Mapping[str, Value]:
        module = _SPEC_OF.get(native_variant(view) or "")
        return _as_typed(view, "spec", (f"{_SPECS}{module}", "layer_spec")) if module is not None else {}

    return computed((VARIANT, INTERVAL), ("spec",), emit, read)


def _predicting_layers() -> Row:
    """Return the row of the specification of DeepSeek-V4's layers for multi-token prediction."""

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if variant_of(job) == "dsv4_hybrid" and job.model.num_nextn_predict_layers > 0:
            yield "mtp-spec", _MTP_SPEC

    def read(view: NativeView) -> Mapping[str, Value]:
        predicts = native_variant(view) == "dsv4_hybrid" and view.peek("mtp-num-layers")
        return _as_typed(view, "mtp-spec", _MTP_SPEC) if predicts else {}

    return computed((VARIANT, "model.num_nextn_predict_layers"), ("mtp-spec",), emit, read)


def _as_typed(view: NativeView, flag: str, fallback: Value) -> Mapping[str, Value]:
    """Consume the value that a job would write; if the argument is absent, record that none is to be written."""
    if view.peek(flag) is None:
        view.values.setdefault(flag, None)
    elif many(view.peek(flag)) == fallback:
        view.take(flag)
    return {}


def _linear() -> tuple[Row, ...]:
    names = [name for name in LINEAR_HEADS if name != "linear_conv_kernel_dim"]
    rows = (sized(f"model.{name}", name.replace("_", "-"), LINEAR_HEADS[name], is_linear) for name in names)
    path, flag = "model.linear_conv_kernel_dim", "mamba-d-conv"
    width = sized(path, flag, LINEAR_HEADS["linear_conv_kernel_dim"], is_linear)

    def read(view: NativeView) -> Mapping[str, Value]:
        linear = native_variant(view) == "gated_delta_net"
        return {path: view.take(flag, 4)} if linear else {}

    note = "qwen3_next_gated_deltanet_attention.py:233 @26.1.0"
    return (*rows, computed(width.fields, (flag,), width.emit, read, note=note), _gate())


def _gate() -> Row:
    path = "model.attention_output_gate"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        wanted = job.model.attention_output_gate
        if wanted is not None and wanted != is_linear(job):
            why = (
                "softmax attention is gated beside linear attention, and only there (qwen3_next_full_attention.py:210)"
            )
            raise Unsupported(path, why, (f"{path}={str(not wanted).lower()}",))
        return ()

    def read(view: NativeView) -> Mapping[str, Value]:
        return {path: True} if native_variant(view) == "gated_delta_net" else {}

    return computed((path, VARIANT, INTERVAL), (), emit, read)


def _sparse() -> tuple[Row, ...]:
    path = "model.dsa_indexer_use_sparse_loss"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if job.model.dsa_indexer_use_sparse_loss is False and variant_of(job) in ("dsa", "dsv4_hybrid"):
            why = "its indexer learns from the chosen keys (multi_latent_attention.py:1086 @26.1.0)"
            raise Unsupported(path, why, (f"{path}=true",))
        return ()

    def read(view: NativeView) -> Mapping[str, Value]:
        return {path: True} if native_variant(view) in ("dsa", "dsv4_hybrid") else {}

    return (
        *indexer("index-"),
        computed((path, VARIANT), (), emit, read),
        when_set("model.index_topk_freq", "index-topk-freq"),
        when_set("model.index_skip_topk_offset", "index-skip-topk-offset"),
        _indexer_types(),
    )


def _indexer_types() -> Row:
    path, flag, letters = "model.indexer_types", "index-topk-pattern", {"full": "F", "shared": "S"}
    names = {letter: name for name, letter in letters.items()}

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        wanted = job.model.indexer_types
        unknown = [name for name in wanted if name not in letters]
        if unknown:
            raise Unsupported(path, f"layers are full or shared, not {', '.join(unknown)}", (f"{path}=[]",))
        if wanted:
            yield flag, "".join(letters[name] for name in wanted)

    def read(view: NativeView) -> Mapping[str, Value]:
        given = view.peek(flag)
        if not given or not set(str(given)) <= set(names):  # C is a synonym of F: passed through
            return {}
        return {path: tuple(names[letter] for letter in str(view.take(flag)))}

    return Row(fields=(path,), flags=(flag,), emit=emit, read=read)


def _compressed() -> tuple[Row, ...]:
    return (
        when_set("model.csa_window_size", "sliding-window-size"),
        listed("model.compress_ratios", "compress-ratios"),
        when_set("model.compress_rope_theta", "compress-rope-theta"),
        when_set("model.o_groups", "o-groups"),
        when_set("model.o_lora_rank", "o-lora-rank"),
        when_set("model.num_hash_layers", "n-hash-layers"),
        switch("model.enable_hyper_connections", "enable-mhc"),
        when_set("model.hc_mult", "hc-mult"),
        when_set("model.hc_sinkhorn_iters", "hc-sinkhorn-iters"),
        when_set("model.hc_eps", "hc-eps"),
    )


def _partial_rotation() -> Row:
    path = "model.partial_rotary_factor"
    fallback = valued(path, "rotary-percent", 1.0, quiet=True)

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        for flag, value in fallback.emit(job):
            yield ("partial-rotary-factor" if is_linear(job) else flag), value

    def read(view: NativeView) -> Mapping[str, Value]:
        given = view.peek("partial-rotary-factor")
        if native_variant(view) == "gated_delta_net" and given and not view.has("rotary-percent"):
            return {path: view.take("partial-rotary-factor")}
        return {path: view.take("rotary-percent", 1.0)}

    note = "--partial-rotary-factor beside linear attention (rotary_pos_embedding.py:85 @26.1.0)."
    flags = ("rotary-percent", "partial-rotary-factor")
    return Row(fields=(path, VARIANT, INTERVAL), flags=flags, emit=emit, read=read, when=has_rope, note=note)


def _positions() -> Row:
    path, flag = "model.position_embedding", "position-embedding-type"
    fallback = kind_of_positions()

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        compressed = variant_of(job) == "dsv4_hybrid" and has_rope(job)
        yield from ((flag, "deepseek4"),) if compressed else fallback.emit(job)

    def read(view: NativeView) -> Mapping[str, Value]:
        given = view.peek(flag, "learned_absolute")
        if native_variant(view) == "dsv4_hybrid" and given in ("rope", "deepseek4"):
            if given == "deepseek4":
                view.take(flag)
            return {path: "rope"}
        return {path: view.take(flag, "learned_absolute")} if given != "deepseek4" else {}

    note = "deepseek4: the rotary positions of DeepSeek-V4, plain and of compressed keys."
    return Row(fields=(path, VARIANT), flags=(flag,), emit=emit, read=read, note=note)


def zero_centered_norms() -> Row:
    """Return the row of zero-centered norms; RMSNorm and LayerNorm have separate switches."""
    path, rms, layer = "model.norm_zero_centered", "add-rmsnorm-offset", "apply-layernorm-1p"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if job.model.norm_zero_centered:
            yield (rms if job.model.normalization == "RMSNorm" else layer), True

    def read(view: NativeView) -> Mapping[str, Value]:
        flag = rms if view.peek("normalization") == "RMSNorm" else layer
        return {path: bool(view.take(flag))} if view.has(flag) else {}

    note = "mindspeed_llm/core/models/common/rms_norm.py:41 @26.1.0"
    return computed((path, "model.normalization"), (rms, layer), emit, read, note=note)


def _swiglu_limit() -> Row:
    path, flag = "model.swiglu_limit", "swiglu-limit"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if job.model.swiglu_limit is not None:
            yield flag, job.model.swiglu_limit

    def read(view: NativeView) -> Mapping[str, Value]:
        return {path: view.take(flag)} if view.peek(flag) else {}

    return Row(fields=(path,), flags=(flag,), emit=emit, read=read, note="0: no limit.")


def recompute_experts() -> Row:
    """Return the row of the only module that 2.1.0 can recompute by name: experts."""
    path, flag = "recompute.modules", "moe-layer-recompute"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        others = [name for name in job.recompute.modules if name not in ("moe", "core_attn")]
        if others:
            raise Unsupported(path, f"this version recomputes moe by name, not {', '.join(others)}", (f"{path}=[moe]",))
        if "moe" in job.recompute.modules:
            yield flag, True

    def read(view: NativeView) -> Mapping[str, Value]:
        if not view.peek(flag):
            return {}
        view.take(flag)
        attention = view.peek("recompute-granularity") == "selective" or view.peek("recompute-activations")
        return {path: ("core_attn", "moe") if attention else ("moe",)}

    return computed((path,), (flag,), emit, read, note="Selective recomputation covers attention beside it.")


_WORKS = ("backend.version=26.1.0",)
_NO = "it has no argument for it"


def _later(*neutral: Value) -> Gap:
    return Gap(why="it came after 2.1.0", neutral=neutral, works=_WORKS)


UNSUPPORTED: Mapping[str, Gap] = {
    "model.softmax_type": Gap(why="its softmax has no sink", neutral=("vanilla",)),
    "model.window_attn_skip_freq": Gap(
        why="a window holds in all layers", matters=lambda job: job.model.sliding_window is not None
    ),
    "model.mlp_only_layers": Gap(
        why="only the first layers can be dense (--first-k-dense-replace)", matters=lambda job: job.model.is_moe
    ),
    "model.no_rope_freq": Gap(why="all layers have the same positions"),
    "model.qk_l2_norm": Gap(why=_NO, neutral=(False,)),
    "model.glu_linear_offset": Gap(why=_NO, neutral=(0.0,)),
    "model.mamba_num_heads": Gap(
        why="heads follow from hidden_size, mamba_expand and mamba_head_dim", works=("model.mamba_num_heads=null",)
    ),
    "model.apply_probs_on_input": Gap(why=_NO, neutral=(False,)),
    **{
        f"precision.fp4_{name}": Gap(
            why="Ascend's FP4 is quantisation-aware training (--qat-scheme)", neutral=neutral, works=()
        )
        for name, neutral in {"format": (), "recipe": (), "param_gather": (False,)}.items()
    },
}
BEFORE_26_1: Mapping[str, Gap] = {
    VARIANT: _later(),
    INTERVAL: _later(1),
    **{f"model.{name}": _later() for name in (*LINEAR_HEADS, "index_n_heads", "index_head_dim", "index_topk")},
    **{
        f"model.{name}": _later(*neutral)
        for name, neutral in {
            "attention_output_gate": (False,),
            "index_topk_freq": (1,),
            "indexer_types": (),
            "index_skip_topk_offset": (),
            "dsa_indexer_loss_coeff": (),
            "dsa_indexer_use_sparse_loss": (False,),
            "mrope_section": (),
            "swiglu_limit": (),
            "is_hybrid_model": (False,),
            "heterogeneous_layers_config_path": (),
            "heterogeneous_layers_config_encoded_json": (),
        }.items()
    },
    **{f"model.{name}": _later(False, 0) for name in OF_V4},
    "optimizer.muon_coefficient_type": _later(),
    "optimizer.muon_scalar_optimizer": _later(),
    "moe.use_upcycling": _later(False),
    "moe.use_legacy_grouped_gemm": Gap(why="it came after 2.1.0", neutral=(False,), severity="warning"),
    "precision.disable_bf16_reduced_precision_matmul": _later(False),
    "kernels.inference_rng_tracker": _later(False),
}
