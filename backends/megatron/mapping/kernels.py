"""Rows for kernels that differ from Megatron-LM's."""

from collections.abc import Iterable, Mapping

from backends.megatron.mapping.factories import FOUR, THREE, explicit, only
from backends.megatron.mapping.options import option
from launcher.job import Job, Value
from launcher.mapping.rows import NativeView, Row, UnreadArgs, fixed, switch

FLASH_SWITCH = UnreadArgs(
    flags=("use_flash_attn",),
    why="Megatron-core models read attention_backend, whose default is flash attention.",
    source="ms-swift 3.12.6 megatron/train/sft.py:41",
    until=THREE,
)


def rows(version: str) -> Mapping[str, tuple[Row, ...]]:
    """Return the rows by the canonical field whose Megatron-LM rows they replace."""
    return {
        "kernels.attention_backend": (
            *option("kernels.attention_backend", "attention_backend", version),
            FLASH_SWITCH.row(),
            *option("kernels.use_fused_mhc", "use_fused_mhc", version),
        ),
        "kernels.transformer_impl": option("kernels.transformer_impl", "transformer_impl", version)
        or (
            only(
                "kernels.transformer_impl",
                ("transformer_engine",),
                "4.x runs Transformer Engine layers only",
                ("kernels.transformer_impl=transformer_engine",),
            ),
        ),
        "kernels.bias_activation_fusion": option(
            "kernels.bias_activation_fusion", "no_bias_swiglu_fusion", version, inverted=True
        ),
        "kernels.rope_fusion": option(
            "kernels.rope_fusion",
            "no_rope_fusion",
            version,
            inverted=True,
            note="the default changed with the name: fused up to 3.x, not fused since 4.0",
        ),
        "kernels.cross_entropy_fusion": (
            explicit("kernels.cross_entropy_fusion", "cross_entropy_loss_fusion", True, since=FOUR),
            switch("kernels.cross_entropy_fusion", "cross_entropy_loss_fusion", until=THREE),
        ),
        "kernels.manual_gc_interval": (
            _garbage("manual_gc_interval", until=THREE),
            _garbage("manual_gc_steps", since=FOUR),
        ),
        "kernels.attention_mask": (_attention_mask(), *_npu_rows()),
    }


def _garbage(flag: str, since: str | None = None, until: str | None = None) -> Row:
    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if job.kernels.manual_gc_interval is not None:
            yield "manual_gc", True
            yield flag, job.kernels.manual_gc_interval

    def read(view: NativeView) -> Mapping[str, Value]:
        if view.peek("manual_gc") is not True:
            return {}
        view.take("manual_gc")
        return {"kernels.manual_gc_interval": view.take(flag, 0)}

    fields = ("kernels.manual_gc_interval",)
    return Row(fields=fields, flags=("manual_gc", flag), emit=emit, read=read, since=since, until=until)


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


def _attention_mask() -> Row:
    path, flag, names = "kernels.attention_mask", "no_create_attention_mask_in_dataloader", ("full", "compressed")

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if job.kernels.attention_mask in names:
            yield flag, job.kernels.attention_mask == "compressed"

    def read(view: NativeView) -> Mapping[str, Value]:
        return {path: names[bool(view.take(flag))]} if view.has(flag) else {}

    return Row(fields=(path,), flags=(flag,), emit=emit, read=read, until="3.6.99")
