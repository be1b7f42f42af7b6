"""Mixed precision of the reference: weights in 16 bits, their fp32 copies in the optimizer, and fp16's loss scale.

Source: megatron/core/optimizer/optimizer.py, MixedPrecisionOptimizer and Float16OptimizerWithFloat16Params;
megatron/training/arguments.py, where bf16 sets accumulate_allreduce_grads_in_fp32 (core 0.12 and 0.16).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

_GROWTH = 2.0  # megatron/core/optimizer/__init__.py: growth_factor, and backoff_factor 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class LossScale:
    """What fp16's loss is multiplied by, and how it follows overflows of gradients.

    Source: megatron/core/optimizer/grad_scaler.py, DynamicGradScaler and ConstantGradScaler; defaults: OptimizerConfig
    (the same in core 0.12 and 0.16).

    Attributes:
        value: the scale of the next iteration.
        dynamic: whether `update` changes it.
        window: iterations without overflow after which it doubles.
        hysteresis: overflows after the last growth from which on each one halves it.
        least: it falls no lower.
        steps: iterations since the last overflow or growth.
        overflows: since the last growth.
    """

    value: float = 2.0**32
    dynamic: bool = True
    window: int = 1000
    hysteresis: int = 2
    least: float = 1.0
    steps: int = 0
    overflows: int = 0

    def update(self, overflow: bool) -> "LossScale":
        """Return the scale after an iteration.

        Args:
            overflow: whether a gradient of the iteration was not finite.
        """
        if not self.dynamic:
            return self
        if overflow:
            falls = self.overflows + 1 >= self.hysteresis
            value = max(self.value / _GROWTH, self.least) if falls else self.value
            return replace(self, value=value, steps=0, overflows=self.overflows + 1)
        if self.steps + 1 == self.window:
            return replace(self, value=self.value * _GROWTH, steps=0, overflows=0)
        return replace(self, steps=self.steps + 1)


class MainParameters:
    """fp32 copies of the parameters of a model, to which `gather` brings the gradients of an iteration.

    A model in fp32 has no copies: its own parameters are optimized.
    """

    def __init__(self, torch: Any, model: Any, *, sums_in_fp32: bool = True) -> None:
        """Copy the parameters.

        Args:
            sums_in_fp32: whether the gradients of every backward pass are added to the copies' in fp32; otherwise they
                are added in the model's number format.
        """
        self.torch, self.sums_in_fp32 = torch, sums_in_fp32
        self.pairs = [(each, self._copy(each)) for each in model.parameters() if each.requires_grad]

    def _copy(self, parameter: Any) -> Any:
        if parameter.dtype == self.torch.float32:
            return parameter
        copy = parameter.detach().float().requires_grad_()
        if self.sums_in_fp32:
            parameter.register_post_accumulate_grad_hook(lambda computed: _move(computed, copy))
        return copy

    def __iter__(self) -> Iterator[Any]:
        """Yield what the optimizer updates."""
        yield from (main for _, main in self.pairs)

    def gather(self, scale: float | None) -> bool:
        """Give the copies the gradients of an iteration without its loss scale.

        Args:
            scale: what its loss was multiplied by; None: there is no loss scale, and overflows are not looked for.

        Returns:
            Whether all of them are finite.
        """
        for parameter, main in self.pairs:
            if parameter is not main and parameter.grad is not None:
                _move(parameter, main)
        if scale is None:
            return True
        gradients = [main.grad for main in self if main.grad is not None]
        for gradient in gradients:
            gradient.mul_(1.0 / scale)
        return all(bool(self.torch.isfinite(gradient).all()) for gradient in gradients)

    def write_back(self) -> None:
        """Round the updated copies to the model's number format."""
        with self.torch.no_grad():
            for parameter, main in self.pairs:
                if parameter is not main:
                    parameter.copy_(main)


def _move(computed: Any, copy: Any) -> None:
    """Add the gradient of a parameter to that of its copy."""
    gradient = computed.grad.float()
    copy.grad = gradient if copy.grad is None else copy.grad + gradient
    computed.grad = None
