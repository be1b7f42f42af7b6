"""Names the first tensor in which two trainings differ: forward from the tokens, then backward from the logits."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launcher.job import Job
from launcher.parity.stages import Stage, stages, value_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """The first difference.

    Attributes:
        stage: where, for people; "" where nothing differs.
        backward: whether it is a gradient.
        relative: largest difference relative to the largest value of the tensor.
        shape: of the tensor, with the tokens first.
        compared: how many tensors were compared up to there.
    """

    stage: str
    backward: bool
    relative: float
    shape: tuple[int, ...]
    compared: int

    def line(self) -> str:
        """Return a sentence."""
        if not self.stage:
            return f"no difference in one process: {self.compared} tensors of the first forward and backward pass agree"
        what = "gradient of " if self.backward else ""
        return (
            f"first difference: {what}{self.stage}, relative {self.relative:.1e} ({self.compared - 1} tensors before "
            "it agree)"
        )


def located(job: Job, reference: Path, side: Path, *, allowed: float) -> Located:
    """Compare two recordings of one process each.

    Args:
        allowed: largest difference in a tensor that counts as rounding, relative to its largest value.

    Raises:
        OSError: a recording is missing.
    """
    import torch

    first, second = torch.load(reference, weights_only=True), torch.load(side, weights_only=True)
    count = 0
    for stage, backward, relative, shape in _differences(job, first, second):
        count += 1
        if not relative <= allowed:
            return Located(stage=stage.name, backward=backward, relative=relative, shape=shape, compared=count)
    return Located(stage="", backward=False, relative=0.0, shape=(), compared=count)


def _differences(job: Job, first: Any, second: Any) -> Iterator[tuple[Stage, bool, float, tuple[int, ...]]]:
    model = job.model
    heads = (model.num_attention_heads or 1, model.num_key_value_heads or model.num_attention_heads or 1)
    order = stages(model.num_hidden_layers or 0)
    logits = [value_of(each, order[-1], gradient=True, heads=heads) for each in (first, second)]
    scale = loss_scale(*logits)
    for backward in (False, True):
        for stage in reversed(order) if backward else order:
            one, other = (value_of(each, stage, gradient=backward, heads=heads) for each in (first, second))
            if one is None or other is None:
                continue
            yield stage, backward, _relative(one, other / scale if backward else other), tuple(one.shape)


def loss_scale(one: Any, other: Any) -> float:
    """Return by how much the second backward pass is scaled: some sum the loss and divide the gradients later."""
    if one is None or other is None or one.shape != other.shape or not float(one.norm()):
        return 1.0
    return float(other.double().norm() / one.double().norm()) or 1.0


def _relative(one: Any, other: Any) -> float:
    if one.shape != other.shape:
        return math.inf
    one, other = one.double(), other.double()
    scale = float(one.abs().max())
    found = float((one - other).abs().max())
    return found if found == 0.0 or scale == 0.0 else found / scale
