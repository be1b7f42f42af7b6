"""Linear attention without flash-linear-attention, whose kernels need a GPU: megatron-core's own torch functions."""

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

    def chunked(*args: Any, cu_seqlens: Any = None, **options: Any) -> Any:
        assert cu_seqlens is None, "packed samples need flash-linear-attention"
        return plain(*args, **options)

    module.chunk_gated_delta_rule = chunked


def _l2norm(x: Any, eps: float = 1e-6) -> Any:
    """Return rows of length 1 (fla/modules/l2norm.py)."""
    return x * (x.square().sum(-1, keepdim=True) + eps).rsqrt()
