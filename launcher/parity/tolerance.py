"""What counts as rounding, by number format: the one table of tolerances, which docs/parity.md prints."""

from collections.abc import Iterable, Mapping
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
    # Measured on MindFormers 1.8.0 (rule MF-FLASH-HALF), 4 iterations of Qwen3 and Qwen3-MoE: 2.5e-6, 3.1e-5, 1e-2.
    "fp32, attention in fp16": Rounding(loss=1e-5, grad_norm=1e-3, parameters=5e-2, tensor=2e-3),
    "fp16": Rounding(loss=1e-3, grad_norm=1e-2, parameters=0.2, tensor=2e-2),
    "bf16": Rounding(loss=5e-3, grad_norm=3e-2, parameters=0.2, tensor=1e-1),
}
_UNITS: Mapping[str, float] = {"fp32": 2**-24, "fp16": 2**-11, "bf16": 2**-8}
"""Largest relative error of one rounding."""
SPREADS = 10.0
"""How often the spread of the reference counts: two implementations differ in more reductions than its two runs."""
WIDEST = 100.0
"""A spread wider than this many times rounding is a training that diverges, and widens nothing further."""


def rounding(dtype: str, asked: float | None = None) -> Rounding:
    """Return the tolerances of a number format; of one without a row, those of bf16.

    Args:
        asked: instead, of loss and gradient norm; parameters and tensors keep their ratio to the gradient norm's.
    """
    row = ROUNDING.get(dtype, ROUNDING["bf16"])
    if asked is None:
        return row
    scale = asked / row.grad_norm
    return Rounding(loss=asked, grad_norm=asked, parameters=row.parameters * scale, tensor=row.tensor * scale)


def unmeetable(dtype: str, asked: float | None) -> str:
    """Return what to say of a tolerance below one rounding of the number format; "" of another."""
    unit = _UNITS.get(dtype, _UNITS["bf16"])
    if asked is None or asked >= unit:
        return ""
    less = f"--tolerance {asked:g} is less than one rounding of {dtype} ({unit:.0e})"
    return f"{less}: no two implementations are that close"


def parameter_ratio(dtype: str) -> float:
    """Return how many times the tolerance of the gradient norm that of the parameters is."""
    return ROUNDING[dtype].parameters / ROUNDING[dtype].grad_norm


def number_format(dtype: str, attention: str) -> str:
    """Return the name of a row of the table: number format of the training, and of its attention."""
    return dtype if attention == dtype else f"{dtype}, attention in {attention}"


def coarsest(formats: Iterable[str]) -> str:
    """Return the number format with the widest tolerance."""
    return max(formats, key=lambda each: rounding(each).grad_norm)
