"""Products of matrices of two floating types, which CANN computes in the wider one and torch's CPU kernels refuse."""

import functools
from collections.abc import Callable
from typing import Any

import torch


def install() -> None:
    """Let torch.matmul take two floating types. Source: CANN aclnnMatmul, self and mat2: type promotion."""
    matmul: Callable[..., Any] = torch.matmul

    @functools.wraps(matmul)
    def promoted(input: Any, other: Any, **more: Any) -> Any:
        if input.dtype != other.dtype and input.is_floating_point() and other.is_floating_point():
            wider = torch.promote_types(input.dtype, other.dtype)
            input, other = input.to(wider), other.to(wider)
        return matmul(input, other, **more)

    torch.matmul = promoted
