"""Names of triton for the few upstream modules that import it without a guard; all others find no triton."""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

_NAMES = ("triton", "triton.language")

MEGATRON_CORE = (
    "megatron.core.inference.contexts.attention_context.triton.tensor_ops",
    "megatron.core.inference.contexts.fused_kv_append_kernel",
    "megatron.core.transformer.custom_layers.batch_invariant_kernels",
)
"""The modules of megatron-core 0.16.1 that import triton without a guard; training runs none of their kernels."""


class _Anything(ModuleType):
    """Returns ``object`` for every public name: annotations (``tl.constexpr``) are evaluated, kernels never run."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return object


def _decorator(*args: Any, **kwargs: Any) -> Any:
    if len(args) == 1 and callable(args[0]) and not kwargs:
        return args[0]
    return lambda function: function


def _modules() -> dict[str, ModuleType]:
    language, triton = _Anything(_NAMES[1]), _Anything(_NAMES[0])
    decorators: dict[str, Callable[..., Any]] = dict.fromkeys(("jit", "autotune", "heuristics"), _decorator)
    vars(triton).update(decorators, Config=lambda *_args, **_kwargs: None, language=language)
    return {_NAMES[0]: triton, _NAMES[1]: language}


class _ServingLoader(importlib.abc.Loader):
    """Runs one module with the names of triton in place, and removes them again."""

    def __init__(self, loader: importlib.abc.Loader) -> None:
        self.loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        before = set(sys.modules)
        sys.modules.update(_modules())
        try:
            self.loader.exec_module(module)
        finally:
            for name in _NAMES:
                if name not in before:
                    sys.modules.pop(name, None)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, importers: Sequence[str]) -> None:
        self.importers = set(importers)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self.importers:
            return None
        self.importers.discard(fullname)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _ServingLoader(spec.loader)
        return spec


def install(importers: Sequence[str]) -> None:
    """Let modules ``importers`` (dotted names, not imported yet) import triton; does nothing where it is installed.

    The PyPI wheel is 1 GB and only CUDA needs it. torch and transformers probe for triton: the names exist
    only while one of the importers is executed.
    """
    if importlib.util.find_spec("triton") is None:
        sys.meta_path.insert(0, _Finder(importers))
