"""Listens to the routers of a transformers model: logits, chosen experts, capacity, and the expert bias."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from launcher.parity.reference_losses import load_balancing, router_z, within_capacity


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """What a training does with its routers.

    Attributes:
        balancing: weight of the load-balancing loss; 0: none.
        in_sequence: the loss is one of each sequence, not of the micro-batch.
        z: weight of the router z-loss; 0: none.
        bias_step: step of the routers' expert bias after each iteration; 0: none.
        capacity: capacity factor; None: no token is dropped.
        policy: which tokens are dropped, `probs` or `position`.
    """

    balancing: float = 0.0
    in_sequence: bool = False
    z: float = 0.0
    bias_step: float = 0.0
    capacity: float | None = None
    policy: str = "probs"


@dataclass(slots=True, kw_only=True)
class _Router:
    module: Any
    logits: list[Any] = field(default_factory=list)
    picks: list[Any] = field(default_factory=list)


class Routers:
    """The routers of a model, in the order in which they compute.

    Raises:
        ValueError: something is asked of routers, and none was found.
    """

    def __init__(self, torch: Any, model: Any, routing: Routing) -> None:
        self._torch, self._config, self._routing = torch, model.config, routing
        self._found: list[_Router] = []
        for name, module in model.named_modules():
            # Mixtral, Qwen and DeepSeek name it so; a dense MLP has a gate_proj.
            if name.rpartition(".")[2] == "gate":
                self._listen(_Router(module=module))
        asked = (routing.balancing, routing.z, routing.bias_step, routing.capacity)
        if not self._found and any(asked):
            raise ValueError("the model has no router named gate: its losses, bias and capacity would be left out")

    def _listen(self, router: _Router) -> None:
        torch, routing = self._torch, self._routing

        def computed(module: Any, inputs: Any, output: Any) -> Any:
            trains = torch.is_grad_enabled()  # not so in a reference model of DPO, a copy with these hooks
            if trains:
                hidden = inputs[0].reshape(-1, inputs[0].shape[-1]).float()
                router.logits.append(torch.nn.functional.linear(hidden, module.weight.float()))
            if not isinstance(output, tuple):  # transformers 4: the logits alone
                return output
            experts = next(each for each in output if not torch.is_floating_point(each))
            if trains:
                router.picks.append(experts.detach())
            if routing.capacity is None:
                return output
            count = module.weight.shape[0]
            return tuple(
                each
                if each is experts or each.shape != experts.shape
                else each * within_capacity(each, experts, count=count, factor=routing.capacity, policy=routing.policy)
                for each in output
            )

        self._found.append(router)
        router.module.register_forward_hook(computed)

    def loss(self, mask: Sequence[Sequence[int]]) -> Any:
        """Return the routers' losses of the micro-batch that was computed last, weighted, summed over layers.

        Args:
            mask: of each sequence, 1 for its tokens and 0 for padding, which no loss counts.
        """
        kept = self._torch.tensor(mask).flatten().bool()
        total = self._torch.zeros(())
        scoring = "sigmoid" if getattr(self._config, "scoring_func", "softmax") == "sigmoid" else "softmax"
        for router in self._found:
            for computed in router.logits:
                logits = computed[kept]
                if self._routing.balancing:
                    parts = logits.split([sum(row) for row in mask]) if self._routing.in_sequence else [logits]
                    chosen = self._config.num_experts_per_tok
                    losses = [load_balancing(part, chosen=chosen, scoring=scoring) for part in parts]
                    total = total + self._routing.balancing * sum(losses) / len(losses)
                if self._routing.z:
                    total = total + self._routing.z * router_z(logits)
            router.logits.clear()
        return total

    def end_iteration(self) -> None:
        """Move each expert's bias towards an even load, as Megatron-core does (arXiv:2408.15664, algorithm 1)."""
        torch = self._torch
        for router in self._found:
            bias = getattr(router.module, "e_score_correction_bias", None)
            if bias is not None and self._routing.bias_step:
                load = torch.bincount(torch.cat([each.flatten() for each in router.picks]), minlength=len(bias)).float()
                bias.data.add_(torch.sign(load.mean() - load) * self._routing.bias_step)
            router.picks.clear()
            router.logits.clear()
