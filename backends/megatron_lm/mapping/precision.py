"""Rows for precision: data types, FP8 and FP4, loss scaling, reduction of gradients."""

from collections.abc import Iterable, Mapping

from backends.megatron_lm.mapping.factories import came, chosen, flag_on, when_set
from launcher.job import Job, Value, value_at
from launcher.job.precision import FP8_AMAX_COMPUTE_ALGO, FP8_AMAX_HISTORY_LEN
from launcher.mapping.rows import Gap, NativeView, Row, computed, switch, switch_off


def precision() -> tuple[Row, ...]:
    """Return the rows of the precision."""
    recipes = ("delayed", "tensorwise", "mxfp8", "blockwise")
    return (
        computed(
            ("precision.dtype",),
            ("bf16", "fp16"),
            lambda job: () if job.precision.dtype == "fp32" else ((job.precision.dtype, True),),
            _read_dtype,
        ),
        when_set("precision.fp8_format", "fp8-format"),
        chosen("precision.fp8_recipe", "fp8-recipe", {name: name for name in recipes}, since="0.13"),
        chosen("precision.fp8_recipe", "fp8-recipe", {name: name for name in recipes[:3]}, until="0.12.9"),
        switch("precision.fp8_param_gather", "fp8-param-gather"),
        reduction(),
        flag_on("precision.attention_softmax_in_fp32", "attention-softmax-in-fp32"),
        switch("precision.apply_query_key_layer_scaling", "apply-query-key-layer-scaling"),
        switch("precision.residual_in_fp32", "fp32-residual-connection"),
        when_set("precision.initial_loss_scale", "initial-loss-scale"),
        when_set("precision.loss_scale_window", "loss-scale-window"),
        when_set("precision.loss_scale", "loss-scale"),
        switch("precision.calculate_per_token_loss", "calculate-per-token-loss"),
        *low_precision(),
    )


def _read_dtype(view: NativeView) -> Mapping[str, Value]:
    for name in ("bf16", "fp16"):
        if view.take(name, False):
            return {"precision.dtype": name}
    return {"precision.dtype": "fp32"}


def reduction() -> Row:
    """Return the row of the precision of gradient reduction; with bf16, Megatron's default is fp32."""

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        wanted = job.precision.grad_reduce_in_fp32
        if wanted:
            yield "accumulate-allreduce-grads-in-fp32", True
        elif wanted is False and job.precision.dtype == "bf16":
            yield "grad-reduce-in-bf16", True

    def read(view: NativeView) -> Mapping[str, Value]:
        if view.take("grad-reduce-in-bf16", False):
            return {"precision.grad_reduce_in_fp32": False}
        return {"precision.grad_reduce_in_fp32": True} if view.take("accumulate-allreduce-grads-in-fp32", False) else {}

    return Row(
        fields=("precision.grad_reduce_in_fp32", "precision.dtype"),
        flags=("accumulate-allreduce-grads-in-fp32", "grad-reduce-in-bf16"),
        emit=emit,
        read=read,
    )


def low_precision() -> tuple[Row, ...]:
    """Return the rows of FP8 scaling, layers kept in bf16, fp16 settings, FP4 and reduced-precision bf16 matmuls."""
    return (
        _amax("precision.fp8_amax_history_len", "fp8-amax-history-len", FP8_AMAX_HISTORY_LEN, 1),
        _amax("precision.fp8_amax_compute_algo", "fp8-amax-compute-algo", FP8_AMAX_COMPUTE_ALGO, "most_recent"),
        when_set("precision.fp8_margin", "fp8-margin"),
        switch_off("precision.fp8_wgrad", "no-fp8-wgrad"),
        switch("precision.first_last_layers_bf16", "first-last-layers-bf16", since="0.12"),
        when_set("precision.num_layers_at_start_in_bf16", "num-layers-at-start-in-bf16", since="0.12"),
        when_set("precision.num_layers_at_end_in_bf16", "num-layers-at-end-in-bf16", since="0.12"),
        switch("precision.fp16_lm_cross_entropy", "fp16-lm-cross-entropy"),
        when_set("precision.min_loss_scale", "min-loss-scale"),
        when_set("precision.loss_scale_hysteresis", "hysteresis"),
        when_set("precision.fp4_format", "fp4-format", since="0.15"),
        when_set("precision.fp4_recipe", "fp4-recipe", since="0.15"),
        switch("precision.fp4_param_gather", "fp4-param-gather", since="0.15"),
        switch(
            "precision.disable_bf16_reduced_precision_matmul", "disable-bf16-reduced-precision-matmul", since="0.12"
        ),
    )


def _amax(path: str, flag: str, fallback: Value, parser_default: Value) -> Row:
    """Return the row of a setting of delayed FP8 scaling, written with it always."""

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        given = value_at(job, path)
        delayed = job.precision.fp8_format is not None and job.precision.fp8_recipe in (None, "delayed")
        if given is not None or delayed:
            yield flag, fallback if given is None else given

    def read(view: NativeView) -> Mapping[str, Value]:
        delayed = view.peek("fp8-format") is not None and view.peek("fp8-recipe", "delayed") == "delayed"
        return {path: view.take(flag, parser_default)} if delayed or view.has(flag) else {}

    note = f"Written with FP8 of delayed scaling: {fallback} unless set; Megatron's own default is {parser_default}."
    return computed((path, "precision.fp8_format", "precision.fp8_recipe"), (flag,), emit, read, note=note)


CAME_LATER: Mapping[str, Gap] = {
    "precision.fp4_format": came(),
    "precision.fp4_recipe": came(),
    "precision.fp4_param_gather": came(False),
}
