"""Records the experts that routers choose for each token in each iteration, in a training of one process.

Routers are found by the name of their class: TopKRouter in Megatron-core, one that ends so in transformers.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

VARIABLE = "LAUNCH_ROUTING"
"""Names a folder: `ITERATION.npz` has a matrix of bits for each router in forward order, [tokens, experts]."""
_CLASS = "topkrouter"


class _Choices:
    """The choices of one iteration, by router in the order of the first forward pass."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.routers: dict[Any, list[Any]] = {}
        self.is_router: dict[type, bool] = {}

    def after(self, module: Any, inputs: Any, output: Any) -> None:
        """Keep what a router returned; a pass without gradients is one that is computed again for the backward pass."""
        kind = type(module)
        known = self.is_router.get(kind)
        if known is None:
            known = any(each.__name__.lower().endswith(_CLASS) for each in kind.__mro__)
            self.is_router[kind] = known
        if not known:
            return
        import torch

        picks = self.routers.setdefault(module, [])
        if torch.is_grad_enabled():
            chosen = _chosen(inputs[0], [each for each in output if isinstance(each, torch.Tensor)])
            if chosen is not None:
                picks.append(chosen)

    def write(self, iteration: int) -> None:
        """Write the choices of an iteration and forget them."""
        import numpy

        if not any(self.routers.values()):
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        found = {str(number): numpy.concatenate(each) for number, each in enumerate(self.routers.values()) if each}
        numpy.savez(self.folder / f"{iteration}.npz", **found)
        for each in self.routers.values():
            each.clear()


def _chosen(hidden: Any, outputs: Sequence[Any]) -> Any:
    """Return which experts each token is sent to, sample by sample, or None: the router returned no choice.

    Args:
        hidden: input of the router, [sequence, batch, hidden] where it returns a map (Megatron-core), [batch, sequence,
            hidden] or [tokens, hidden] where it returns the numbers of experts (transformers).
    """
    import torch

    for each in outputs:
        if each.dtype == torch.bool:
            length, size = (*hidden.shape[:-1], 1)[:2]
            return each.reshape(length, size, -1).transpose(0, 1).reshape(length * size, -1).cpu().numpy()
    for each in outputs:
        if not each.is_floating_point():
            numbers = each.reshape(-1, each.shape[-1])
            experts = max(other.shape[-1] for other in outputs)
            empty = torch.zeros(len(numbers), experts, dtype=torch.bool, device=numbers.device)
            return empty.scatter(1, numbers.long(), True).cpu().numpy()
    return None


_active: list[_Choices] = []


def install() -> None:
    """Record the choices in this process, where the variable asks for it; torch is imported then.

    A process without torch (MindFormers' ranks) records none.
    """
    folder = os.environ.get(VARIABLE)
    if folder and not _active:
        try:
            from torch.nn.modules import module
        except ModuleNotFoundError:
            return

        _active.append(_Choices(Path(folder)))
        module.register_module_forward_hook(_active[0].after)


def write(iteration: int) -> None:
    """Write the choices of an iteration, where they are recorded."""
    for each in _active:
        each.write(iteration)
