"""Plain torch versions of the operators that MindSpeed's builders compile from C++ for CANN and ATB."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from launcher.rehearse.cpu.torch_npu_standin import elementwise, grouped, routing

Grouped = tuple[list[Tensor], list[Tensor], list[Tensor]]


def npu_gmm(
    x: Sequence[Tensor], weight: Sequence[Tensor], bias: Any, group_list: Any, group_type: int, group_list_type: int
) -> list[Tensor]:
    """Return the grouped matrix product (mindspeed/ops/gmm.py:GMMFunction.forward)."""
    return grouped.npu_grouped_matmul(
        x, weight, bias=bias, group_list=group_list, group_type=group_type, group_list_type=group_list_type
    )


def npu_gmm_backward(
    grad: Sequence[Tensor], x: Sequence[Tensor], weight: Sequence[Tensor], group_list: Any, group_list_type: int
) -> Grouped:
    """Return the gradients of x, weight and bias (none) of :func:`npu_gmm` with rows grouped."""
    sizes = grouped.group_sizes(group_list, group_list_type)
    grads, rows = torch.split(grad[0], sizes), torch.split(x[0], sizes)
    return (
        [torch.cat([part @ matrix.T for part, matrix in zip(grads, weight[0], strict=True)])],
        [torch.stack([part.T @ upstream for part, upstream in zip(rows, grads, strict=True)])],
        [],
    )


def npu_gmm_backward_fusion(
    grad: Sequence[Tensor], weight: Sequence[Tensor], group_list: Any, group_list_type: int
) -> Grouped:
    """Return the gradient of x only: the caller adds the weight's to its main gradient."""
    grads = torch.split(grad[0], grouped.group_sizes(group_list, group_list_type))
    return [torch.cat([part @ matrix.T for part, matrix in zip(grads, weight[0], strict=True)])], [], []


def npu_ring_attention_update(*args: Any) -> Any:
    """Return the merged attention output and statistics, computed by MindSpeed's unfused code."""
    from mindspeed.core.context_parallel.utils import forward_update_without_fused

    return forward_update_without_fused(*args)


def npu_apply_fused_adamw_v2(
    param: Tensor, grad: Tensor, exp_avg: Tensor, exp_avg_sq: Tensor, max_exp_avg_sq: Tensor, state_step: Tensor,
    lr: float, beta1: float, beta2: float, weight_decay: float, eps: float, amsgrad: bool, maximize: bool,
) -> None:  # fmt: skip
    """Do a step of AdamW in place; `state_step` counts it already (mindspeed/ops/csrc/cann)."""
    from torch.optim.adamw import adamw

    adamw(
        [param], [grad], [exp_avg], [exp_avg_sq], [max_exp_avg_sq] if amsgrad else [], [state_step.sub(1).float()],
        foreach=False, lr=lr, beta1=beta1, beta2=beta2, weight_decay=weight_decay, eps=eps, amsgrad=amsgrad,
        maximize=maximize,
    )  # fmt: skip


KERNELS: dict[str, Callable[..., Any]] = {
    "npu_gmm": npu_gmm,
    "npu_gmm_v2": npu_gmm,
    "npu_gmm_backward": npu_gmm_backward,
    "npu_gmm_backward_v2": npu_gmm_backward,
    "npu_gmm_backward_fusion": npu_gmm_backward_fusion,
    "npu_rotary_position_embedding": elementwise.npu_rotary_position_embedding,
    "npu_matmul_add_fp32": grouped.npu_matmul_add_fp32,
    "npu_groupmatmul_add_fp32": grouped.npu_groupmatmul_add_fp32,
    "npu_moe_token_permute": routing.npu_moe_token_permute,
    "npu_moe_token_unpermute": routing.npu_moe_token_unpermute,
    "npu_apply_fused_adamw_v2": npu_apply_fused_adamw_v2,
    "npu_ring_attention_update": npu_ring_attention_update,
}


class Extension:
    """Replaces the module that ``MindSpeedOpBuilder.load()`` returns; one object serves every builder."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name in KERNELS:
            return KERNELS[name]
        if name.startswith("__"):
            raise AttributeError(name)
        raise NotImplementedError(
            f"MindSpeed's operator {name} has no stand-in on CPU; leave out the option that selects it, "
            "or run on the accelerator"
        )
