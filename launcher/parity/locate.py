"""Names the first tensor in which two trainings differ: forward from the tokens, then backward from the logits."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from launcher.job import Job, value_at
from launcher.mapping.engine import translate
from launcher.parity.recording import Recording, Span, shared_tokens
from launcher.parity.sides import Side
from launcher.parity.stages import LOSS, TOKENS, Stage, stages


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """The first difference.

    Attributes:
        stage: where, for people; "" where nothing differs.
        backward: whether it is a gradient.
        relative: largest difference relative to the largest value of the tensor.
        shape: of the tensor, with the tokens first.
        compared: how many tensors were compared up to there.
        settings: what each side was given that decides what is computed there, by its label.
        problem: why nothing was compared; "" where it was.
    """

    stage: str
    backward: bool
    relative: float
    shape: tuple[int, ...]
    compared: int
    settings: Mapping[str, str]
    problem: str = ""

    def lines(self) -> list[str]:
        """Return sentences."""
        if self.problem:
            return [f"not located: {self.problem}"]
        if not self.stage:
            agree = f"{self.compared} tensors of the first forward and backward pass agree"
            return [f"no difference in one process: {agree}"]
        what = "gradient of " if self.backward else ""
        agree = f"relative {self.relative:.1e} ({self.compared - 1} tensors before it agree)"
        found = f"first difference: {what}{self.stage}, {agree}"
        return [found, *(f"  {label}: {words}" for label, words in self.settings.items())]


def not_located(problem: str) -> Located:
    """Return that nothing was compared."""
    return Located(stage="", backward=False, relative=0.0, shape=(), compared=0, settings={}, problem=problem)


def located(job: Job, reference: Path, side: Path, *, allowed: float) -> tuple[Located, Stage | None]:
    """Compare two recordings of one process each; return the first difference, and its stage.

    Args:
        allowed: largest difference in a tensor that counts as rounding, relative to its largest value.

    Raises:
        OSError: a recording is missing.
    """
    import torch

    try:
        first, second = (Recording(torch.load(each, weights_only=True)) for each in (reference, side))
    except LookupError as error:
        return not_located(str(error)), None
    count = 0
    for stage, backward, relative, shape in _differences(job, first, second):
        count += 1
        if not relative <= allowed:
            found = Located(
                stage=stage.name, backward=backward, relative=relative, shape=shape, compared=count, settings={}
            )
            return found, stage
    return Located(stage="", backward=False, relative=0.0, shape=(), compared=count, settings={}), None


def with_settings(found: Located, stage: Stage | None, sides: Sequence[Side], reference: str | None) -> Located:
    """Return a difference with what each side was given for it.

    Args:
        sides: those that are compared.
        reference: label of the one that reads fields instead of a backend's arguments; None: there is none.
    """
    if stage is None or not stage.concerns:
        return found
    fields = [path for path in stage.concerns if value_at(sides[0].job, path) is not None]
    given = {} if reference is None else {reference: " ".join(f"{p}={value_at(sides[0].job, p)}" for p in fields)}
    return replace(found, settings={**given, **{side.label: _arguments(side, stage.concerns) for side in sides}})


def _arguments(side: Side, concerns: Sequence[str]) -> str:
    """Return the arguments with which a backend gets some fields."""
    native = translate(side.backend.prepare(side.job, side.version), side.backend, side.version).native
    chosen = [each for each in native if each.field in concerns]
    return " ".join(side.backend.argv(native.with_args(chosen))) or "no argument: its own default"


def _differences(job: Job, first: Recording, second: Recording) -> Iterator[tuple[Stage, bool, float, tuple[int, ...]]]:
    model = job.model
    heads = (model.num_attention_heads or 1, model.num_key_value_heads or model.num_attention_heads or 1)
    order = stages(model.num_hidden_layers or 0)
    spans = shared_tokens(first, second)
    if not spans:
        yield next(stage for stage in order if stage.name == TOKENS), False, math.inf, tuple(first.tokens.shape)
        return

    def values(stage: Stage, *, backward: bool) -> list[Any]:
        found = [each.value(stage, gradient=backward, heads=heads) for each in (first, second)]
        if any(each is None for each in found):
            return []
        # The last token of a sequence predicts nothing; conversations mask others, too, which a gradient shows.
        last = int(stage.name == LOSS)
        return [_chosen(each, spans, number, last) for number, each in enumerate(found)]

    logits = values(order[-2], backward=True)
    scale = loss_scale(*logits) if logits else 1.0
    for backward in (False, True):
        for stage in reversed(order) if backward else order:
            # Its gradient is what the mean divides by, the same for all tokens.
            if stage.name == LOSS and (backward or job.task.type != "pretrain"):
                continue
            found = values(stage, backward=backward)
            if found:
                one, other = found
                yield stage, backward, _relative(one, other / scale if backward else other), tuple(one.shape)


def _chosen(rows: Any, spans: Sequence[Span], number: int, last: int) -> Any:
    """Return the rows of the shared tokens, without the last ones of each sequence.

    Args:
        number: 0 for the first recording, 1 for the second.
        last: how many rows are left out.
    """
    import torch

    starts = [(each.second if number else each.first, each.length - last) for each in spans]
    return torch.cat([rows[start : start + length] for start, length in starts])


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
