"""One training step and one evaluation with megatron-core's schedules and optimizer."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from launcher.rehearse.core.configs import optimizer_config
from launcher.rehearse.core.model import Model
from launcher.rehearse.core.settings import Settings


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """Result of one step; loss is the mean over the unmasked tokens of the global batch."""

    loss: float
    grad_norm: float
    skipped: bool
    stop: bool
    """Some rank received a stop request."""


@dataclasses.dataclass(kw_only=True)
class Stepper:
    """The optimizer, the schedule and megatron's pipeline schedule over one model."""

    settings: Settings
    model: Model
    optimizer: Any
    scheduler: Any
    forward_backward: Any
    rows: int = 1
    """Sequences of one sample: 2 of a pair."""

    def train(self, data: list[Iterator[dict[str, Any]]], *, stop: bool) -> Trained:
        """Run one step on the next micro batches of `data` (one iterator a model chunk)."""
        for chunk in self.model.chunks:
            chunk.zero_grad_buffer()
        self.optimizer.zero_grad()
        losses = self.run_schedule(data, forward_only=False)
        succeeded, grad_norm, _zeros = self.optimizer.step()
        if succeeded:
            self.scheduler.step(increment=self.settings.global_batch_size)
        self._clear_trackers()
        total, tokens, stopped = self._sum_over_world(losses, stop)
        return Trained(
            loss=total / max(tokens, 1.0),
            grad_norm=float(grad_norm or 0.0),
            skipped=not succeeded,
            stop=stopped > 0,
        )

    def evaluate(self, data: list[Iterator[dict[str, Any]]], iterations: int) -> float:
        """Return the mean loss over `iterations` global batches, without training."""
        import torch

        for chunk in self.model.chunks:
            chunk.eval()
        losses: list[Any] = []
        with torch.no_grad():
            for _ in range(iterations):
                losses += self.run_schedule(data, forward_only=True)
        for chunk in self.model.chunks:
            chunk.train()
        self._clear_trackers()
        total, tokens, _stop = self._sum_over_world(losses, False)
        return total / max(tokens, 1.0)

    def run_schedule(self, data: list[Iterator[dict[str, Any]]], *, forward_only: bool) -> list[Any]:
        """Run megatron's schedule on the next micro batches; return their reports, on the last stage only."""
        return self.schedule(data, forward_step, forward_only=forward_only)

    def schedule(
        self, data: list[Iterator[dict[str, Any]]], step: Callable[..., Any], *, forward_only: bool
    ) -> list[Any]:
        """Run megatron's schedule with a forward step."""
        results: list[Any] = self.forward_backward(
            forward_step_func=step,
            data_iterator=data if len(data) > 1 else data[0],
            model=self.model.chunks,
            num_microbatches=self.settings.num_microbatches,
            seq_length=self.settings.seq_length,
            micro_batch_size=self.settings.micro_batch_size * self.rows,
            forward_only=forward_only,
        )
        return results or []

    def _clear_trackers(self) -> None:
        """Clear megatron's trackers of auxiliary losses."""
        if self.model.config.num_moe_experts:
            from megatron.core.transformer.moe import moe_utils

            moe_utils.clear_aux_losses_tracker()
        if self.model.config.mtp_num_layers:
            from megatron.core.transformer.multi_token_prediction import MTPLossLoggingHelper

            if MTPLossLoggingHelper.tracker:  # only the last stage has one
                MTPLossLoggingHelper.clean_loss_in_tracker()

    def _sum_over_world(self, losses: list[Any], stop: bool) -> tuple[float, float, float]:
        """Sum loss, tokens and stop requests over all ranks in one all-reduce.

        A loss counts once in each tensor parallel group.
        """
        import torch
        from megatron.core import parallel_state

        counts = losses if parallel_state.get_tensor_model_parallel_rank() == 0 else []
        sums = torch.zeros(3, dtype=torch.float64, device=torch.cuda.current_device())
        for loss in counts:
            sums[:2] += loss
        sums[2] = float(stop)
        if self.settings.layout.world_size > 1:
            torch.distributed.all_reduce(sums)
        total, tokens, stopped = sums.tolist()
        return total, tokens, stopped


def forward_step(data: Iterator[dict[str, Any]], model: Any) -> tuple[Any, Any]:
    """Run the model on the next micro batch; the schedule calls this."""
    batch = next(data)
    output = model(batch["tokens"], batch["position_ids"], None, labels=batch["labels"], loss_mask=batch["loss_mask"])
    return output, partial(masked_loss, batch["loss_mask"])


def masked_loss(loss_mask: Any, output: Any) -> tuple[Any, Any, Any]:
    """Return the sum of the unmasked tokens' losses, their number, and both for the report.

    Like loss_func of Megatron-LM's pretrain_gpt.py; the schedule divides the sum.
    """
    import torch

    losses, mask = output.float().view(-1), loss_mask.view(-1)
    total, tokens = torch.sum(losses * mask), mask.sum()
    report = torch.stack([total.detach(), tokens]).double()
    return total, tokens.detach().to(torch.int), report


def build_stepper(settings: Settings, model: Model) -> Stepper:
    """Build optimizer and schedules of a run."""
    from megatron.core.optimizer import get_megatron_optimizer, get_standard_config_overrides
    from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler
    from megatron.core.pipeline_parallel.schedules import get_forward_backward_func

    config = optimizer_config(settings)
    optimizer = get_megatron_optimizer(
        config,
        model.chunks,
        config_overrides=get_standard_config_overrides(config=config),
        use_gloo_process_groups=False,
    )
    model.config.grad_scale_func = optimizer.scale_loss
    scheduler = OptimizerParamScheduler(
        optimizer,
        init_lr=settings.value("lr_warmup_init"),
        max_lr=settings.value("lr"),
        min_lr=settings.value("min_lr"),
        lr_warmup_steps=settings.lr_warmup_steps,
        lr_decay_steps=settings.lr_decay_steps,
        lr_decay_style=settings.value("lr_decay_style"),
        start_wd=settings.value("start_weight_decay"),
        end_wd=settings.value("end_weight_decay"),
        wd_incr_steps=settings.train_iters * settings.global_batch_size,
        wd_incr_style=settings.value("weight_decay_incr_style"),
        use_checkpoint_opt_param_scheduler=settings.value("use_checkpoint_opt_param_scheduler"),
        override_opt_param_scheduler=settings.value("override_opt_param_scheduler"),
        wsd_decay_steps=settings.wsd_decay_steps,
        lr_wsd_decay_style=settings.value("lr_wsd_decay_style"),
    )
    return Stepper(
        settings=settings,
        model=model,
        optimizer=optimizer,
        scheduler=scheduler,
        forward_backward=get_forward_backward_func(),
    )
