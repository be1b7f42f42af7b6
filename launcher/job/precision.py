"""Number formats: of weights, activations, matrix products and reductions."""

from launcher.job.option import option
from launcher.job.sources import ARGUMENTS, OPTIMIZER_CONFIG, TRANSFORMER_CONFIG
from launcher.records import dataclass

# Defaults of fp8_amax_history_len and fp8_amax_compute_algo.
FP8_AMAX_HISTORY_LEN, FP8_AMAX_COMPUTE_ALGO = 1024, "max"


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """Number formats of weights, activations and reductions."""

    dtype: str = option(
        "bf16",
        "Precision of weights and activations.",
        source=ARGUMENTS,
        choices=("bf16", "fp16", "fp32"),
        affects_training=True,
    )
    fp8_format: str | None = option(
        None,
        "FP8 format of matrix products.",
        source=f"{TRANSFORMER_CONFIG}.fp8",
        choices=("e4m3", "hybrid"),
        affects_training=True,
    )
    fp8_recipe: str | None = option(
        None,
        "FP8 scaling recipe.",
        source=f"{TRANSFORMER_CONFIG}.fp8_recipe",
        choices=("delayed", "tensorwise", "mxfp8", "blockwise"),
        affects_training=True,
    )
    fp8_param_gather: bool | None = option(
        None, "Keep and gather weights in FP8.", source=f"{ARGUMENTS} --fp8-param-gather", affects_training=True
    )
    fp8_amax_history_len: int | None = option(
        None,
        "FP8, delayed scaling: length of the amax history; none: 1024.",
        unit="iterations",
        source=f"{ARGUMENTS} --fp8-amax-history-len",
        minimum=1,
        affects_training=True,
    )
    fp8_amax_compute_algo: str | None = option(
        None,
        "FP8, delayed scaling: amax taken from the history; none: max.",
        source=f"{ARGUMENTS} --fp8-amax-compute-algo",
        choices=("most_recent", "max"),
        affects_training=True,
    )
    fp8_margin: int | None = option(
        None,
        "FP8, delayed scaling: margin, as a power of two.",
        source=f"{ARGUMENTS} --fp8-margin",
        affects_training=True,
    )
    fp8_wgrad: bool | None = option(
        None, "FP8 for the gradients of weights too.", source=f"{ARGUMENTS} --no-fp8-wgrad", affects_training=True
    )
    fp4_format: str | None = option(
        None,
        "FP4 format of matrix products.",
        source=f"{TRANSFORMER_CONFIG}.fp4",
        choices=("e2m1",),
        affects_training=True,
    )
    fp4_recipe: str | None = option(
        None,
        "FP4 scaling recipe.",
        source=f"{TRANSFORMER_CONFIG}.fp4_recipe",
        choices=("nvfp4", "custom"),
        affects_training=True,
    )
    fp4_param_gather: bool | None = option(
        None, "Keep and gather weights in FP4.", source=f"{ARGUMENTS} --fp4-param-gather", affects_training=True
    )
    disable_bf16_reduced_precision_matmul: bool | None = option(
        None,
        "GEMMs in bf16 do not accumulate partial sums in bf16.",
        source=f"{TRANSFORMER_CONFIG}.disable_bf16_reduced_precision_matmul",
        affects_training=True,
    )
    first_last_layers_bf16: bool | None = option(
        None,
        "FP8: the first and last layers stay in bf16.",
        source=f"{TRANSFORMER_CONFIG}.first_last_layers_bf16",
        affects_training=True,
    )
    num_layers_at_start_in_bf16: int | None = option(
        None,
        "first_last_layers_bf16: layers at the start.",
        unit="layers",
        source=f"{TRANSFORMER_CONFIG}.num_layers_at_start_in_bf16",
        minimum=0,
        affects_training=True,
    )
    num_layers_at_end_in_bf16: int | None = option(
        None,
        "first_last_layers_bf16: layers at the end.",
        unit="layers",
        source=f"{TRANSFORMER_CONFIG}.num_layers_at_end_in_bf16",
        minimum=0,
        affects_training=True,
    )
    fp16_lm_cross_entropy: bool | None = option(
        None, "The loss is computed in fp16.", source=f"{ARGUMENTS} --fp16-lm-cross-entropy", affects_training=True
    )
    grad_reduce_in_fp32: bool | None = option(
        None,
        "Accumulate and reduce gradients in fp32.",
        source=f"{ARGUMENTS} --accumulate-allreduce-grads-in-fp32",
        affects_training=True,
    )
    attention_softmax_in_fp32: bool = option(
        True,
        "Softmax of attention in fp32.",
        source=f"{TRANSFORMER_CONFIG}.attention_softmax_in_fp32",
        affects_training=True,
    )
    residual_in_fp32: bool | None = option(
        None,
        "Residual connections in fp32.",
        source=f"{TRANSFORMER_CONFIG}.fp32_residual_connection",
        affects_training=True,
    )
    norm_in_fp32: bool | None = option(
        None, "Normalisations in fp32.", source="MindFormers layernorm_compute_dtype", affects_training=True
    )
    rope_in_fp32: bool | None = option(
        None, "Rotary positions in fp32.", source="MindFormers rotary_dtype", affects_training=True
    )
    apply_query_key_layer_scaling: bool | None = option(
        None,
        "Scale Q·K by 1/layer (fp16).",
        source=f"{TRANSFORMER_CONFIG}.apply_query_key_layer_scaling",
        affects_training=True,
    )
    initial_loss_scale: float | None = option(
        None, "fp16: first dynamic loss scale.", source=f"{OPTIMIZER_CONFIG}.initial_loss_scale", minimum=1
    )
    loss_scale_window: int | None = option(
        None,
        "fp16: steps without overflow before the dynamic loss scale grows.",
        unit="iterations",
        source=f"{OPTIMIZER_CONFIG}.loss_scale_window",
        minimum=1,
    )
    loss_scale_factor: int | None = option(
        None, "fp16: factor by which the dynamic loss scale grows.", source="MindSpore DynamicLossScaleUpdateCell"
    )
    loss_scale: float | None = option(
        None, "fp16: fixed loss scale; none: dynamic.", source=f"{OPTIMIZER_CONFIG}.loss_scale", minimum=1
    )
    min_loss_scale: float | None = option(
        None, "fp16: smallest dynamic loss scale.", source=f"{OPTIMIZER_CONFIG}.min_loss_scale", minimum=0
    )
    loss_scale_hysteresis: int | None = option(
        None, "fp16: overflows before the dynamic loss scale falls.", source=f"{OPTIMIZER_CONFIG}.hysteresis", minimum=1
    )
    calculate_per_token_loss: bool = option(
        False,
        "Average the loss over the tokens of the global batch instead of per micro-batch.",
        source=f"{TRANSFORMER_CONFIG}.calculate_per_token_loss",
        affects_training=True,
    )
