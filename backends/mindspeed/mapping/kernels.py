"""MindSpeed-LLM mapping rows for attention kernels, layer library and fusions."""

from collections.abc import Iterable, Mapping

from backends.megatron_lm.mapping.factories import when_set
from launcher.job import Job, Value, value_at
from launcher.mapping.rows import NativeView, Row, Unsupported, computed, switch


def flash_attention() -> Row:
    """Return the row of flash attention, which nearly all upstream scripts enable."""
    path = "kernels.attention_backend"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        backend = job.kernels.attention_backend
        if backend == "fused":
            raise Unsupported(path, "fused attention is cuDNN's; on Ascend it is flash", (f"{path}=flash",))
        if backend in (None, "flash", "auto"):
            yield "use-flash-attn", True

    def read(view: NativeView) -> Mapping[str, Value]:
        return {path: "flash" if view.take("use-flash-attn", False) else "unfused"}

    return computed(
        (path,),
        ("use-flash-attn",),
        emit,
        read,
        note="360 of 361 upstream scripts set it; transformer_engine without it fails in the first forward pass.",
    )


def layer_library(old: bool) -> Row:
    """Return the row of --transformer-impl, always written; 2.1.0 defaults to local layers."""
    path = "kernels.transformer_impl"
    return computed(
        (path,),
        ("transformer-impl",),
        lambda job: (("transformer-impl", job.kernels.transformer_impl or "local"),),
        lambda view: {path: view.take("transformer-impl", "local" if old else "transformer_engine")},
        note=(
            "Read before Megatron's defaults exist (context_parallel_feature.py:115 @26.1.0), so always written; local "
            "is what the weight converter makes for dense models and what LoRA needs."
        ),
    )


def fusions() -> Mapping[str, tuple[Row, ...]]:
    """Return the rows of fused kernels by canonical field."""
    return {
        "kernels.masked_softmax_fusion": (softmax_fusion(),),
        "kernels.bias_activation_fusion": (
            _fused("kernels.bias_activation_fusion", "use-fused-swiglu", "no-bias-swiglu-fusion"),
        ),
        "kernels.rope_fusion": (_fused("kernels.rope_fusion", "use-fused-rotary-pos-emb", "no-rope-fusion"),),
        "kernels.gradient_accumulation_fusion": (accumulation_fusion(),),
    }


def _fused(path: str, on: str, off: str) -> Row:
    """Return a row for MindSpeed's switch that turns a kernel on and Megatron's that turns it off."""

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        value = value_at(job, path)
        if value is not None:
            yield (on if value else off), True

    def read(view: NativeView) -> Mapping[str, Value]:
        if view.has(on) and view.has(off):
            return {}
        if view.take(on, False):
            return {path: True}
        return {path: False} if view.take(off, False) else {}

    return Row(fields=(path,), flags=(on, off), emit=emit, read=read)


def softmax_fusion() -> Row:
    """Return the row of the masked softmax, whose fused kernel exists on NVIDIA only."""
    path = "kernels.masked_softmax_fusion"
    return computed(
        (path,),
        ("no-masked-softmax-fusion",),
        lambda job: () if job.kernels.masked_softmax_fusion else (("no-masked-softmax-fusion", True),),
        lambda view: {path: not view.take("no-masked-softmax-fusion", False)},
        note="The fused kernel is CUDA code; 358 of 361 upstream scripts turn it off.",
    )


def accumulation_fusion() -> Row:
    """Return the row of gradient accumulation fused into the GEMM: one switch for linear layers, one for experts."""
    path = "kernels.gradient_accumulation_fusion"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        value = job.kernels.gradient_accumulation_fusion
        if value is False:
            yield "no-gradient-accumulation-fusion", True
        elif value and job.moe.grouped_gemm and job.model.is_moe:
            yield "gemm-gradient-accumulation-fusion", True

    def read(view: NativeView) -> Mapping[str, Value]:
        if view.take("no-gradient-accumulation-fusion", False):
            return {path: False}
        if view.peek("moe-grouped-gemm") and view.take("gemm-gradient-accumulation-fusion", False):
            return {path: True}
        return {}

    return computed(
        (path, "moe.grouped_gemm"),
        ("no-gradient-accumulation-fusion", "gemm-gradient-accumulation-fusion"),
        emit,
        read,
        note="Both together, as in upstream's Qwen3-30B example: fused for experts only.",
    )


def rmsnorm_fusion() -> Row:
    """Return the row of the fused RMSNorm."""
    return switch("kernels.rmsnorm_fusion", "use-fused-rmsnorm")


def sparse_mode() -> Row:
    """Return the row of the sparse mode of CANN's fused attention."""
    return when_set("kernels.sparse_mode", "sparse-mode")
