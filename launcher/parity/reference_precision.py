"""Mixed precision of the reference: weights in bf16, their fp32 copies and fp32 gradients in the optimizer.

Source: megatron/core/optimizer/optimizer.py, Float16OptimizerWithFloat16Params; megatron/training/arguments.py, where
bf16 sets accumulate_allreduce_grads_in_fp32 (core 0.12 and 0.16).
"""

from collections.abc import Iterator
from typing import Any


class MainParameters:
    """fp32 copies of the parameters of a model, to which the gradients of every backward pass are added in fp32.

    A model in fp32 has no copies: its own parameters are optimized.
    """

    def __init__(self, torch: Any, model: Any) -> None:
        self.torch = torch
        self.pairs = [(each, self._copy(each)) for each in model.parameters() if each.requires_grad]

    def _copy(self, parameter: Any) -> Any:
        if parameter.dtype == self.torch.float32:
            return parameter
        copy = parameter.detach().float().requires_grad_()

        def move(computed: Any) -> None:
            gradient = computed.grad.float()
            copy.grad = gradient if copy.grad is None else copy.grad + gradient
            computed.grad = None

        parameter.register_post_accumulate_grad_hook(move)
        return copy

    def __iter__(self) -> Iterator[Any]:
        """Yield what the optimizer updates."""
        yield from (main for _, main in self.pairs)

    def write_back(self) -> None:
        """Round the updated copies to the model's number format."""
        with self.torch.no_grad():
            for parameter, main in self.pairs:
                if parameter is not main:
                    parameter.copy_(main)
