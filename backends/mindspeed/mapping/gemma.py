"""Rows of what MindSpeed-LLM has for Gemma: norms of outputs, scales, soft caps, and a window in every second layer."""

from collections.abc import Iterable, Mapping

from backends.megatron_lm.mapping.factories import when_set
from backends.mindspeed.families import alternates
from launcher.job import Job, Value
from launcher.mapping.rows import Gap, NativeView, Row, Unsupported, computed, switch

_CAP = "model.attn_logit_softcapping"
_WINDOW = ("model.sliding_window", "model.full_attention_layers")


def rows(old: bool) -> tuple[Row, ...]:
    """Return the rows of these fields; `old` is 2.1.0, which caps attention logits too."""
    caps = (_attention_cap(),) if old else ()
    return (
        switch("model.norms_of_outputs", "post-norm", note="only in the layers of gemma2_spec, written with it"),
        switch("model.scale_embeddings", "input-embeds-norm"),
        when_set("model.query_pre_attn_scalar", "query-pre-attn-scalar"),
        when_set("model.final_logit_softcapping", "output-logit-softcapping"),
        *caps,
    )


def _attention_cap() -> Row:
    flag = "attn-logit-softcapping"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        cap = job.model.attn_logit_softcapping
        if cap is None:
            return
        if job.kernels.attention_backend in (None, "flash", "auto"):
            why = "flash attention does not cap logits (core/transformer/dot_product_attention.py:331 @2.2.0)"
            raise Unsupported(_CAP, why, ("kernels.attention_backend=unfused", f"{_CAP}=null"))
        yield flag, cap

    def read(view: NativeView) -> Mapping[str, Value]:
        return {_CAP: view.take(flag)} if view.has(flag) and not view.peek("use-flash-attn") else {}

    return computed((_CAP, "kernels.attention_backend"), (flag,), emit, read)


def sliding_window() -> Row:
    """Return the row of the attention window: in all layers, or in every second one of the layers of gemma2_spec."""
    everywhere, alternating = "sliding-window", "interleave-sliding-window"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        model = job.model
        if model.sliding_window is None:
            return
        if model.full_attention_layers and not alternates(model):
            why = "a window holds in all layers, or in the first, third … of Gemma 2's"
            raise Unsupported(_WINDOW[1], why, (f"{_WINDOW[1]}=[]", f"{_WINDOW[0]}=null"))
        yield (alternating if model.full_attention_layers else everywhere), model.sliding_window

    def read(view: NativeView) -> Mapping[str, Value]:
        if view.has(everywhere):
            return {_WINDOW[0]: view.take(everywhere)}
        layers = view.peek("num-layers")
        if view.peek("post-norm") and view.peek(alternating) and isinstance(layers, int):
            return {_WINDOW[0]: view.take(alternating), _WINDOW[1]: tuple(range(1, layers, 2))}
        return {}

    fields = (*_WINDOW, "model.norms_of_outputs", "model.num_hidden_layers")
    note = "tasks/models/transformer/transformer_layer.py:60 @26.1.0"
    return computed(fields, (everywhere, alternating), emit, read, note=note)


UNSUPPORTED: Mapping[str, Gap] = {
    _CAP: Gap(
        why="only attention with ALiBi caps its logits (core/transformer/alibi_attention.py:90 @26.1.0): the argument"
        " has no effect",
        works=(f"{_CAP}=null",),
    ),
    "model.rope_local_theta": Gap(
        why="all layers have the same positions",
        matters=lambda job: job.model.rope_local_theta != job.model.rope_theta,
    ),
}
