"""Linear attention without flash-linear-attention, whose kernels need a GPU: megatron-core's own torch functions."""

import itertools
from typing import Any

from launcher.rehearse.cpu.after_import import after_import

_CORE = "megatron.core.ssm.gated_delta_net"


def install(users: tuple[str, ...] = ()) -> None:
    """Let megatron-core's gated delta net compute with torch.

    Args:
        users: modules that take the kernels' names from the package themselves and inherit its layer.
    """
    for name in (_CORE, *users):
        after_import(name, _with_torch)


def _with_torch(module: Any) -> None:
    """Set what a module imports of the package (0.16.1 ssm/gated_delta_net.py:38); torch convolves there already."""
    if module.chunk_gated_delta_rule is not None:
        return
    module.HAVE_FLA = True
    module.l2norm = _l2norm
    plain = module.torch_chunk_gated_delta_rule

    def chunked(*tensors: Any, g: Any, beta: Any, cu_seqlens: Any = None, **options: Any) -> Any:
        import torch

        if cu_seqlens is None:
            return plain(*tensors, g=g, beta=beta, **options)
        parts = [
            plain(*(each[:, part] for each in tensors), g=g[:, part], beta=beta[:, part], **options)[0]
            for part in _parts(cu_seqlens)
        ]
        return torch.cat(parts, dim=1), None

    module.chunk_gated_delta_rule = chunked
    if hasattr(module, "causal_conv1d"):  # of flash-linear-attention, with packed samples; mcore-bridge takes it
        module.causal_conv1d = _causal_convolution


def _parts(cu_seqlens: Any) -> list[slice]:
    """Return the samples of a pack by their cumulative lengths [samples + 1]."""
    ends = [int(end) for end in cu_seqlens]
    return [slice(start, end) for start, end in itertools.pairwise(ends) if end > start]


def _causal_convolution(
    x: Any, weight: Any, bias: Any = None, activation: str | None = None, cu_seqlens: Any = None
) -> tuple[Any, None]:
    """Convolve each channel over the tokens before, samples of a pack apart (fla/modules/convolution.py).

    Args:
        x: [batch, tokens, channels].
        weight: [channels, width].
        cu_seqlens: cumulative lengths of packed samples, batch 1; None: one sample a row.
    """
    import torch
    from torch.nn import functional

    def convolved(sample: Any) -> Any:
        width = weight.size(-1)
        padded = functional.pad(sample.transpose(1, 2), (width - 1, 0))
        return functional.conv1d(padded, weight.unsqueeze(1), bias, groups=weight.size(0)).transpose(1, 2)

    parts = [slice(None)] if cu_seqlens is None else _parts(cu_seqlens)
    out = torch.cat([convolved(x[:, part]) for part in parts], dim=1)
    return (functional.silu(out) if activation in ("silu", "swish") else out), None


def _l2norm(x: Any, eps: float = 1e-6) -> Any:
    """Return rows of length 1 (fla/modules/l2norm.py)."""
    return x * (x.square().sum(-1, keepdim=True) + eps).rsqrt()
