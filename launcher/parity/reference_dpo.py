"""Trains with direct preference optimisation on transformers' model: the loss as its paper states it.

-log sigmoid(beta (log pi(y_w)/pi_ref(y_w) - log pi(y_l)/pi_ref(y_l))), Rafailov et al. 2023 (arXiv:2305.18290, eq. 7),
with label smoothing e (arXiv:2305.18290v3, appendix; Mitchell 2023, cDPO): the same with the answers exchanged, by the
share e. `rpo_alpha` adds the mean negative log probability of a token of the preferred answers (arXiv:2404.19733).

python -m launcher.parity.reference_dpo OPTIONS.json
"""

import copy
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

from launcher.job import Job
from launcher.parity.preference import Pair
from launcher.parity.reference import Options, decoded, options_of, train

COMPUTED = frozenset({"task.type", "task.beta", "task.loss_type", "task.label_smoothing", "task.rpo_alpha"})
"""Fields of a job that this loss takes into account."""
_BETA = 0.1  # of both backends where the job has none (megatron_args.py:218, features_manager/dpo/dpo.py:28)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferenceOptions(Options):
    """What DPO adds to the options of the reference.

    Attributes:
        pairs: in the order of the training.
        beta: weight of the distance from the reference model, which is the start model.
        label_smoothing: probability that a preference is wrong.
        rpo_alpha: weight of the preferred answers' own loss; 0: none.
    """

    module: ClassVar[str] = "launcher.parity.reference_dpo"
    pairs: Sequence[Pair]
    beta: float
    label_smoothing: float
    rpo_alpha: float


def preference_options(job: Job, model: Path, out: Path, pairs: Sequence[Pair]) -> PreferenceOptions:
    """Return the reference's options for a small job of which `unsupported` yields nothing."""
    basic, task = options_of(job, model, out, []), job.task
    return PreferenceOptions(
        **{each.name: getattr(basic, each.name) for each in fields(basic)},
        pairs=pairs,
        beta=_BETA if task.beta is None else task.beta,
        label_smoothing=task.label_smoothing or 0.0,
        rpo_alpha=task.rpo_alpha or 0.0,
    )


def unsupported(job: Job) -> Iterator[tuple[str, object, str]]:
    """Yield the values of DPO that the reference does not compute, with an override without them."""
    if job.task.loss_type not in (None, "sigmoid"):
        yield "task.loss_type", job.task.loss_type, "task.loss_type=sigmoid"
    for name in ("aux_loss_coeff", "z_loss_coeff"):
        value = getattr(job.moe, name)
        if job.model.is_moe and value:
            yield f"moe.{name}", value, f"moe.{name}=0"


class Gradients:
    """Adds the gradients of one global batch; the reference model is a copy of the model at the first call."""

    def __init__(self, preference: PreferenceOptions) -> None:
        self.preference = preference
        self.frozen: Any = None

    def __call__(self, torch: Any, model: Any, options: Options, iteration: int) -> tuple[float, None]:
        """Add the gradients, micro-batch by micro-batch; return the mean loss of the micro-batches."""
        if self.frozen is None:
            self.frozen = copy.deepcopy(model).eval().requires_grad_(False)
        first, size = iteration * options.global_batch_size, options.micro_batch_size
        count = options.global_batch_size // size
        total = 0.0
        for start in range(first, first + options.global_batch_size, size):
            pairs = self.preference.pairs[start : start + size]
            with torch.no_grad():
                before = answers(torch, self.frozen, pairs)
            loss = preference_loss(torch, self.preference, answers(torch, model, pairs), before, pairs)
            (loss / count).backward()
            total += loss.item() / count
        return total, None


def answers(torch: Any, model: Any, pairs: Sequence[Pair]) -> Any:
    """Return the log probability of each answer after its prompt, [pairs, 2]: preferred, rejected.

    Each answer is a sequence of its own without padding.
    """
    found = []
    for pair in pairs:
        for answer in (pair.chosen, pair.rejected):
            tokens = torch.tensor([[*pair.prompt, *answer]])
            logits = model(input_ids=tokens).logits.float()[0, len(pair.prompt) - 1 : -1]
            chosen = torch.tensor(answer)[:, None]
            found.append(torch.log_softmax(logits, -1).gather(-1, chosen).sum())
    return torch.stack(found).view(len(pairs), 2)


def preference_loss(torch: Any, preference: PreferenceOptions, policy: Any, before: Any, pairs: Sequence[Pair]) -> Any:
    """Return the mean loss of pairs.

    Args:
        policy, before: log probabilities of the answers by the model and by the reference model, [pairs, 2].
    """
    margin = preference.beta * ((policy - before)[:, 0] - (policy - before)[:, 1])
    # log sigmoid(x) = -log(1 + exp(-x))
    right, wrong = torch.log1p(torch.exp(-margin)), torch.log1p(torch.exp(margin))
    loss = ((1 - preference.label_smoothing) * right + preference.label_smoothing * wrong).mean()
    if preference.rpo_alpha:
        loss = loss - preference.rpo_alpha * policy[:, 0].sum() / sum(len(pair.chosen) for pair in pairs)
    return loss


def main(file: Path) -> None:
    """Train with the options of a file that `to_json` wrote."""
    read: Mapping[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    pairs = [Pair(**each) for each in read["pairs"]]
    preference = PreferenceOptions(**{**decoded(read), "pairs": pairs})
    train(preference, Gradients(preference))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
