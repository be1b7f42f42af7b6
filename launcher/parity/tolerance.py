"""What counts as rounding, by number format: the one table of tolerances, which docs/parity.md prints."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounding:
    """Largest relative differences of one number format.

    Attributes:
        loss: of an iteration.
        grad_norm: of an iteration; it sums the squares of all gradients.
        parameters: norm of the difference of a tensor over the norm of its movement. Adam divides by the root of the
            squared gradients: where these are as small as rounding, it amplifies rounding to its step.
        tensor: largest difference in a tensor of the forward or backward pass, over the tensor's largest value.
    """

    loss: float
    grad_norm: float
    parameters: float
    tensor: float


# fp32: measured at most 3e-7 (loss) and 3e-6 (gradient norm) between implementations (docs/parity.md).
ROUNDING: Mapping[str, Rounding] = {
    "fp32": Rounding(loss=1e-5, grad_norm=1e-4, parameters=1e-3, tensor=2e-5),
    "fp16": Rounding(loss=1e-3, grad_norm=1e-2, parameters=0.2, tensor=2e-2),
    "bf16": Rounding(loss=5e-3, grad_norm=3e-2, parameters=0.2, tensor=1e-1),
}
SPREADS = 10.0
"""How often the spread of the reference counts: two implementations differ in more reductions than its two runs."""
WIDEST = 100.0
"""A spread wider than this many times rounding is a training that diverges, and widens nothing further."""


def rounding(dtype: str) -> Rounding:
    """Return the tolerances of a number format; of one without a row, those of bf16."""
    return ROUNDING.get(dtype, ROUNDING["bf16"])
