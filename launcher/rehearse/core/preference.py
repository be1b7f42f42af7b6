"""Direct preference optimisation with TRL's formula (trl/trainer/dpo_trainer.py dpo_loss, loss_type sigmoid).

The reference is the start model: its values of the trained parameters are put in place for a forward pass before each
step. With LoRA these are adapters of 0.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from functools import partial
from typing import Any

from launcher.rehearse.core.model import Model
from launcher.rehearse.core.options import PreferenceOptions
from launcher.rehearse.core.settings import Settings
from launcher.rehearse.core.step import Stepper

Batch = dict[str, Any]


def for_preferences(settings: Settings) -> Settings:
    """Return the settings of a run on preferences.

    The loss is a mean over pairs, and parameters change outside of the optimizer, which a later gather would undo.
    """
    off = dict.fromkeys(("calculate_per_token_loss", "overlap_param_gather", "align_param_gather"), False)
    return dataclasses.replace(settings, overrides={**settings.overrides, **off})


class Reference:
    """The start model's values of the parameters that are trained."""

    def __init__(self, model: Model, *, adapters: bool) -> None:
        self.model = model
        self.trained = [each for chunk in model.unwrapped for each in chunk.parameters() if each.requires_grad]
        self.start = None if adapters else [each.detach().clone() for each in self.trained]

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Put the start model's values in place, without dropout; the trained ones come back afterwards."""
        now = [each.detach().clone() for each in self.trained]
        training = [chunk.training for chunk in self.model.chunks]
        for chunk in self.model.chunks:
            chunk.eval()
        try:
            self._put(self.start)
            yield
        finally:
            self._put(now)
            for chunk, mode in zip(self.model.chunks, training, strict=True):
                chunk.train(mode)

    def _put(self, values: list[Any] | None) -> None:
        for index, parameter in enumerate(self.trained):
            if values is None:
                parameter.data.zero_()
            else:
                parameter.data.copy_(values[index])


class PreferenceStepper(Stepper):
    """Trains on pairs: each micro batch holds the chosen answers, then the rejected ones."""

    def __init__(self, stepper: Stepper, options: PreferenceOptions, reference: Reference) -> None:
        super().__init__(
            settings=stepper.settings,
            model=stepper.model,
            optimizer=stepper.optimizer,
            scheduler=stepper.scheduler,
            forward_backward=stepper.forward_backward,
            rows=2,
        )
        self.options, self.reference = options, reference

    def run_schedule(self, data: list[Iterator[Batch]], *, forward_only: bool) -> list[Any]:
        """Run the reference, then the model, on the next micro batches."""
        import torch

        count = self.settings.num_microbatches
        batches = [[next(chunk) for _ in range(count)] for chunk in data]
        with self.reference.in_place(), torch.no_grad():
            found = self.schedule([iter(chunk) for chunk in batches], _reference_step, forward_only=True)
        for batch, log_probabilities in zip(batches[-1], found, strict=False):  # on the last stage only
            batch["reference"] = log_probabilities
        step = partial(_preference_step, self.options)
        return self.schedule([iter(chunk) for chunk in batches], step, forward_only=forward_only)


def _losses(data: Iterator[Batch], model: Any) -> tuple[Batch, Any]:
    batch = next(data)
    output = model(batch["tokens"], batch["position_ids"], None, labels=batch["labels"], loss_mask=batch["loss_mask"])
    return batch, output


def _reference_step(data: Iterator[Batch], model: Any) -> tuple[Any, Any]:
    batch, output = _losses(data, model)

    def log_probabilities(losses: Any) -> tuple[Any, Any]:
        found = sums(losses, batch["loss_mask"])[0]
        return found.sum(), found.detach()

    return output, log_probabilities


def _preference_step(options: PreferenceOptions, data: Iterator[Batch], model: Any) -> tuple[Any, Any]:
    batch, output = _losses(data, model)

    def loss(losses: Any) -> tuple[Any, Any]:
        import torch

        policy, tokens = sums(losses, batch["loss_mask"])
        total = preference_loss(options, policy, batch["reference"], tokens)
        pairs = total.new_tensor(policy.numel() // 2)
        return total, torch.stack([total.detach() * pairs, pairs]).double()

    return output, loss


def sums(losses: Any, mask: Any) -> tuple[Any, Any]:
    """Return the log probability of each answer and its number of tokens, [rows] each, from losses [rows, sequence]."""
    import torch
    from megatron.core import parallel_state
    from megatron.core.tensor_parallel.mappings import reduce_from_tensor_model_parallel_region

    found = torch.stack([-(losses.float() * mask).sum(-1), mask.sum(-1)])
    group = parallel_state.get_context_parallel_group()
    if group.size() > 1:  # sums forward; each rank's gradient is that of its own tokens
        found = reduce_from_tensor_model_parallel_region(found, group=group)
    return found[0], found[1]


def preference_loss(options: PreferenceOptions, policy: Any, reference: Any, tokens: Any) -> Any:
    """Return the mean loss of pairs.

    Args:
        policy, reference: log probabilities of the answers, [2 x pairs]: chosen, then rejected.
        tokens: their numbers of tokens, [2 x pairs].
    """
    from torch.nn.functional import logsigmoid

    chosen, rejected = (policy - reference).chunk(2)
    margin = options.beta * (chosen - rejected)
    smoothing = options.label_smoothing
    loss = (-logsigmoid(margin) * (1 - smoothing) - logsigmoid(-margin) * smoothing).mean()
    if options.rpo_alpha is None:
        return loss
    answers = tokens.chunk(2)[0].sum().clamp(min=1)
    return loss - options.rpo_alpha * policy.chunk(2)[0].sum() / answers
