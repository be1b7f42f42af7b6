"""Transformer Engine's LayerNorm and RMSNorm: computed in float32, parameters tagged for sequence parallelism."""

from typing import Any

import torch
import torch.nn.functional as F


def normalise(hidden: Any, normalization: str, weight: Any, bias: Any, eps: float, zero_centered: bool) -> Any:
    """Normalise the last dimension of ``hidden`` [..., size] in float32 and return it in its dtype."""
    scale = weight.float() + 1 if zero_centered else weight.float()
    if normalization == "RMSNorm":
        normed = F.rms_norm(hidden.float(), hidden.shape[-1:], scale, eps)
    else:
        normed = F.layer_norm(hidden.float(), hidden.shape[-1:], scale, None if bias is None else bias.float(), eps)
    return normed.to(hidden.dtype)


def on_cpu(device: Any) -> Any:
    """Return the device to build a parameter on: "meta" stays, everything else is the CPU."""
    return "meta" if str(device) == "meta" else "cpu"


class Norm(torch.nn.Module):
    """Base class of LayerNorm and RMSNorm: ``weight``, ``bias`` (None for RMSNorm) and an empty ``_extra_state``."""

    normalization = ""

    def __init__(
        self,
        hidden_size: int | None = None,
        eps: float = 1e-5,
        sequence_parallel: bool = False,
        params_dtype: Any = None,
        zero_centered_gamma: bool = False,
        device: Any = None,
        normalized_shape: int | None = None,
        dtype: Any = None,
        **_kwargs: Any,
    ) -> None:
        super().__init__()
        size = hidden_size if hidden_size is not None else normalized_shape
        kind = {"dtype": params_dtype or dtype or torch.get_default_dtype(), "device": on_cpu(device)}
        self.eps, self.zero_centered_gamma = eps, zero_centered_gamma
        self.weight = torch.nn.Parameter(torch.full((size,), 0.0 if zero_centered_gamma else 1.0, **kind))
        self.weight.sequence_parallel = sequence_parallel
        self.bias = None
        if self.normalization == "LayerNorm":
            self.bias = torch.nn.Parameter(torch.zeros(size, **kind))
            self.bias.sequence_parallel = sequence_parallel

    def get_extra_state(self) -> Any:
        """Return Transformer Engine's empty extra state, so that checkpoints have its key."""
        return torch.empty(0, dtype=torch.uint8)

    def set_extra_state(self, _state: Any) -> None:
        """Ignore the extra state: it holds fp8 statistics only."""

    def forward(self, hidden: Any) -> Any:
        """Normalise the last dimension of ``hidden``."""
        return normalise(hidden, self.normalization, self.weight, self.bias, self.eps, self.zero_centered_gamma)


class LayerNorm(Norm):
    """te.pytorch.LayerNorm."""

    normalization = "LayerNorm"


class RMSNorm(Norm):
    """te.pytorch.RMSNorm."""

    normalization = "RMSNorm"
