"""Records what each module of a model computes in the first pass that trains it, forward and backward, in its rank."""

import os
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

VARIABLE = "LAUNCH_TRACE"
"""Names the file, written by `torch.save`: module name to `inputs`, `outputs` and `gradient` of the first output."""

AGAIN = "@last"
"""Ends the name of a module's last pass, where it is called again: multi-token prediction has logits of its own."""
_SMALLEST = 10  # submodules of a model; loss functions and metrics have fewer


class _Trace:
    """One recording."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.names: dict[Any, str] = {}
        self.root: Any = None
        self.modules: dict[str, dict[str, Any]] = {}
        self.handles: list[Any] = []

    def start(self) -> None:
        """Listen to every module until the model that is recorded has ended its forward pass, or the iteration has."""
        from torch.nn.modules import module

        self.handles = [
            module.register_module_forward_pre_hook(self._before),
            module.register_module_forward_hook(self._after),
        ]

    def _before(self, module: Any, _inputs: Any) -> None:
        """Take the first model whose gradients are asked: DPO computes its reference model before, without any."""
        import torch

        if self.root is None and torch.is_grad_enabled() and len(list(module.modules())) > _SMALLEST:
            self.watch(module)

    def watch(self, root: Any) -> None:
        """Record the first pass of each module of a model."""
        self.root = root
        self.names = {each: name for name, each in root.named_modules()}

    def _after(self, module: Any, inputs: Any, output: Any) -> None:
        if self.root is None:
            return
        name = self.names.get(module)
        if name is not None:
            name = f"{name}{AGAIN}" if name in self.modules else name
            found = {
                "inputs": [each.detach().clone() for each in _tensors(inputs)],
                "outputs": [each.detach().clone() for each in _tensors(output)],
                "gradient": None,
            }
            self.modules[name] = found
            first = next(_tensors(output), None)
            if first is not None and first.requires_grad and first.is_floating_point():
                first.register_hook(lambda gradient: found.update(gradient=gradient.detach().clone()))
        if module is self.root:
            self._stop()

    def _stop(self) -> None:
        for handle in self.handles:
            handle.remove()

    def write(self) -> None:
        """Write what was recorded."""
        import torch

        self._stop()
        torch.save(self.modules, self.file)


_active: list[_Trace] = []


def install() -> None:
    """Record the first pass of this process, where the variable asks for it and torch is there, which is imported."""
    file = os.environ.get(VARIABLE)
    if file and not _active and find_spec("torch") is not None:
        _active.append(_Trace(file))
        _active[0].start()


def watch(model: Any) -> None:
    """Record a model that is not called as a whole, instead of the first one that is."""
    if _active:
        _active[0].watch(model)


def write() -> None:
    """Write what was recorded, once; nothing without a record."""
    if _active and _active[0].modules:
        _active.pop().write()


def _tensors(value: Any) -> Iterator[Any]:
    """Yield the tensors of a module's arguments or results, in order."""
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from _tensors(each)
    elif hasattr(value, "to_tuple"):
        yield from _tensors(value.to_tuple())
