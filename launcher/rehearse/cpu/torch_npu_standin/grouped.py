"""Grouped and accumulating matrix products of torch_npu (experts, fused gradient accumulation) in plain torch."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

ENDS, COUNTS = 0, 1
"""``group_list_type``: the list holds cumulative ends, or a count for each group."""


def group_sizes(group_list: Any, group_list_type: int) -> list[int]:
    """Return the number of rows of each group from a list or tensor of ends (type 0) or counts (type 1)."""
    numbers = [int(number) for number in group_list]
    if group_list_type == COUNTS:
        return numbers
    return [end - start for start, end in zip([0, *numbers[:-1]], numbers, strict=True)]


def npu_grouped_matmul(
    x: Sequence[Tensor],
    weight: Sequence[Tensor],
    *,
    bias: Any = None,
    group_list: Any = None,
    split_item: int = 0,
    group_type: int = -1,
    group_list_type: int = ENDS,
    **_ignored: Any,
) -> list[Tensor]:
    """Return one tensor in a list: rows of x[0] grouped (type 0), or its inner dimension grouped (type 2).

    Type 0: x[0] [rows, k], weight [groups] of [k, n] or one [groups, k, n] gives [rows, n]. Type 2: x[0] [m, k],
    weight[0] [k, n] gives [groups, m, n]. Raises NotImplementedError for other types and for a bias.
    """
    if bias is not None and len(bias):
        raise NotImplementedError("npu_grouped_matmul: bias has no stand-in on CPU")
    sizes = group_sizes(group_list, group_list_type)
    rows = sum(sizes)
    if group_type == 0:
        weights = list(weight[0]) if len(weight) == 1 and weight[0].dim() == 3 else list(weight)
        parts = torch.split(x[0][:rows], sizes)
        return [torch.cat([part @ matrix for part, matrix in zip(parts, weights, strict=True)])]
    if group_type == 2:
        left = torch.split(x[0][:, :rows], sizes, dim=1)
        right = torch.split(weight[0][:rows], sizes, dim=0)
        return [torch.stack([a @ b for a, b in zip(left, right, strict=True)])]
    raise NotImplementedError(f"npu_grouped_matmul: group_type={group_type} has no stand-in on CPU (0 and 2 have)")


def npu_matmul_add_fp32(grad_output: Tensor, total_input: Tensor, grad: Tensor) -> None:
    """Add grad_output^T @ total_input to the main gradient ``grad`` in place, the product in float32."""
    grad.add_((grad_output.t().float() @ total_input.float()).to(grad.dtype))


def npu_groupmatmul_add_fp32(x: Tensor, dy: Tensor, group_list: Any, grad: Tensor) -> None:
    """Add each group's x^T @ dy to its slice of ``grad`` [groups, k, n] in place; the list holds ends."""
    sizes = group_sizes(group_list, ENDS)
    slices = grad.view(len(sizes), x.shape[-1], dy.shape[-1])
    for index, (rows, grads) in enumerate(zip(torch.split(x, sizes), torch.split(dy, sizes), strict=True)):
        slices[index].add_(rows.t().float() @ grads.float())


def npu_grouped_matmul_add_(y: Tensor, x: Tensor, weight: Tensor, group_list: Any, **_ignored: Any) -> Tensor:
    """Add each group's x^T @ weight to ``y`` in place and return it (the newer name of npu_groupmatmul_add_fp32)."""
    npu_groupmatmul_add_fp32(x, weight, group_list, y)
    return y
