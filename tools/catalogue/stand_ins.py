"""Stand-ins for packages that an argument parser's module imports but never uses: device runtimes, kernels, compilers.

Only a child process that builds a parser and ends installs them.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any


class Anything:
    """An object that can be called, subscripted, entered, inherited from and asked for any attribute."""

    def __init__(self, name: str = "stand-in") -> None:
        object.__setattr__(self, "_name", name)

    def __getattr__(self, key: str) -> Any:
        if key.startswith("__") and key.endswith("__"):
            raise AttributeError(key)
        value = Anything(f"{self._name}.{key}")
        object.__setattr__(self, key, value)
        return value

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # A bare decorator must hand its function or class back.
        if len(args) == 1 and not kwargs and isinstance(args[0], (types.FunctionType, type)):
            return args[0]
        return Anything(f"{self._name}()")

    def __getitem__(self, key: Any) -> Any:
        return Anything(f"{self._name}[]")

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __bool__(self) -> bool:
        return True

    def __enter__(self) -> Anything:
        return self

    def __exit__(self, *args: object) -> None:
        return None

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return (object,)

    def __or__(self, other: Any) -> Any:
        return other

    __ror__ = __or__

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __int__(self) -> int:
        return 0

    __index__ = __int__

    def __float__(self) -> float:
        return 0.0

    def __lt__(self, other: Any) -> bool:
        return False

    __gt__ = __lt__

    def __le__(self, other: Any) -> bool:
        return True

    __ge__ = __le__


class _Module(types.ModuleType):
    def __getattr__(self, key: str) -> Any:
        if key.startswith("__") and key.endswith("__"):
            raise AttributeError(key)
        value = Anything(f"{self.__name__}.{key}")
        setattr(self, key, value)
        return value


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, names: Sequence[str], only_missing: bool) -> None:
        self.names = tuple(names)
        self.only_missing = only_missing

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        parent = sys.modules.get(name.rpartition(".")[0])
        if self.only_missing and parent is not None and not isinstance(parent, _Module):
            return None
        if any(name == wanted or name.startswith(wanted + ".") for wanted in self.names):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        module = _Module(spec.name)
        module.__path__ = []
        module.__file__ = f"<stand-in>/{spec.name}"
        # What version checks at import time are content with.
        setattr(module, "__version__", "3.2.0")  # noqa: B010
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        return None


def install(names: Sequence[str], *, only_missing: bool = False) -> None:
    """Let every import of these modules, and of anything below them, yield a stand-in; or only where there is none."""
    sys.meta_path.insert(len(sys.meta_path) if only_missing else 0, _Finder(names, only_missing))


def pretend_accelerator() -> None:
    """Let torch answer as if a device were there; nothing is ever sent to it."""
    import torch

    answers: dict[str, Callable[..., Any]] = {
        "is_available": lambda: True,
        "device_count": lambda: 8,
        "current_device": lambda: 0,
        "set_device": lambda *_: None,
        "get_device_name": lambda *_: "stand-in",
        "get_device_capability": lambda *_: (9, 0),
        "get_device_properties": lambda *_: types.SimpleNamespace(total_memory=64 << 30, major=9, minor=0, name="x"),
        "current_stream": lambda *_: Anything("stream"),
        "default_stream": lambda *_: Anything("stream"),
        "synchronize": lambda *_: None,
        "get_rng_state": lambda *_: torch.get_rng_state(),
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, answer)
    for name in ("Stream", "Event"):
        setattr(torch.cuda, name, Anything)
