"""Fields that describe the layers of the embedded trainer, so that the estimate counts the kernels that run."""

from collections.abc import Mapping
from typing import Literal

from launcher.rehearse.core.options import Device

Layers = Literal["local", "transformer_engine"]

# What the trainer's local layers are: no kernel is fused, attention is torch's scaled_dot_product_attention, which has
# flash attention on CPU, and for 16 bits on CUDA (launcher/rehearse/core/configs.py, launcher/rehearse/cpu/modules.py).
IMPLEMENTATION: Mapping[Layers, tuple[str, ...]] = {
    "local": (
        "kernels.transformer_impl=local",
        "kernels.attention_backend=flash",
        "kernels.gradient_accumulation_fusion=false",
        "kernels.bias_activation_fusion=false",
        "kernels.bias_dropout_fusion=false",
        "kernels.rope_fusion=false",
        "moe.grouped_gemm=false",
    ),
    "transformer_engine": ("kernels.gradient_accumulation_fusion=false",),
}


def described(device: Device, *, transformer_engine: bool) -> tuple[str, ...]:
    """Return the overrides that describe the trainer's layers on a device.

    On CPU torch composes RMSNorm of element-wise kernels; on CUDA it has one kernel.

    Args:
        transformer_engine: whether it is installed.
    """
    if device == "cpu":
        return (*IMPLEMENTATION["local"], "kernels.rmsnorm_fusion=false")
    return IMPLEMENTATION["transformer_engine" if transformer_engine else "local"]
