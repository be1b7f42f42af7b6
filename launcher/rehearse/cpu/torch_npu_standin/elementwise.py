"""Normalisation, activation, rotary and softmax operators of torch_npu in plain torch; autograd works through them."""

import torch
from torch import Tensor


def npu_rms_norm(x: Tensor, gamma: Tensor, epsilon: float = 1e-6) -> tuple[Tensor, Tensor]:
    """Return (x / rms(x) * gamma in x's dtype, 1 / rms(x) in float32); the norm runs over the last dimension."""
    wide = x.float()
    rstd = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + epsilon)
    return (wide * rstd * gamma.float()).to(x.dtype), rstd


def npu_swiglu(x: Tensor, dim: int = -1) -> Tensor:
    """Return silu(first half) * second half of ``x`` along ``dim``."""
    gate, up = torch.chunk(x, 2, dim=dim)
    return torch.nn.functional.silu(gate) * up


def npu_swiglu_backward(grad: Tensor, x: Tensor, dim: int = -1) -> Tensor:
    """Return the gradient of :func:`npu_swiglu` with respect to ``x``."""
    gate, up = torch.chunk(x, 2, dim=dim)
    sigmoid = torch.sigmoid(gate)
    return torch.cat([grad * up * sigmoid * (1 + gate * (1 - sigmoid)), grad * gate * sigmoid], dim=dim)


def npu_rotary_mul(x: Tensor, r1: Tensor, r2: Tensor, rotary_mode: str = "half") -> Tensor:
    """Return x * r1 (cosines) + rotated x * r2 (sines); ``interleave`` pairs neighbours, ``half`` pairs the halves."""
    if rotary_mode == "interleave":
        even, odd = x[..., 0::2], x[..., 1::2]
        rotated = torch.stack((-odd, even), dim=-1).flatten(-2)
    else:
        first, second = torch.chunk(x, 2, dim=-1)
        rotated = torch.cat((-second, first), dim=-1)
    return x * r1.to(x.dtype) + rotated * r2.to(x.dtype)


def npu_rotary_position_embedding(x: Tensor, cos: Tensor, sin: Tensor, mode: int = 0) -> Tensor:
    """Return ``x`` rotated; mode 0 pairs the halves, mode 1 pairs neighbours."""
    return npu_rotary_mul(x, cos, sin, "interleave" if mode == 1 else "half")


def npu_scaled_masked_softmax(x: Tensor, mask: Tensor, scale: float = 1.0, fixed_triu_mask: bool = False) -> Tensor:
    """Return softmax(x * scale) over the last dimension, True in ``mask`` (or above the diagonal) masked out."""
    if fixed_triu_mask:
        mask = torch.triu(torch.ones(x.shape[-2:], dtype=torch.bool), 1)
    return torch.softmax((x.float() * scale).masked_fill(mask.bool(), -10000.0), -1).to(x.dtype)
