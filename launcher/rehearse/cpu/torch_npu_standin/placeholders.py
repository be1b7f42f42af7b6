"""Importable placeholders for packages that exist only where an accelerator's software is installed."""

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Iterator, Mapping, Sequence
from types import FunctionType, ModuleType
from typing import Any


class Placeholder:
    """An object that imports, decorators, type annotations and feature checks can use without effect.

    It does not silently replace computation: an operator that has no stand-in is an :class:`AbsentOperator`.
    """

    def __init__(self, name: str) -> None:
        object.__setattr__(self, "_placeholder_name", name)

    def __getattr__(self, key: str) -> Any:
        if key.startswith("__") and key.endswith("__"):
            raise AttributeError(key)
        value = _attribute(f"{self._placeholder_name}.{key}")
        object.__setattr__(self, key, value)
        return value

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        decorated = args[0] if len(args) == 1 and not kwargs else None
        if isinstance(decorated, FunctionType | type):
            return decorated
        return Placeholder(f"{self._placeholder_name}()")

    def __getitem__(self, key: Any) -> "Placeholder":
        return Placeholder(f"{self._placeholder_name}[]")

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __enter__(self) -> "Placeholder":
        return self

    def __exit__(self, *exc: object) -> None:
        return None

    def __mro_entries__(self, bases: tuple[type, ...]) -> tuple[type, ...]:
        return (object,)

    def __or__(self, other: Any) -> Any:
        return other

    __ror__ = __or__

    def __repr__(self) -> str:
        return f"<placeholder for {self._placeholder_name}>"


class AbsentOperator(Placeholder):
    """A fused operator that exists (feature checks see it) but cannot be computed without its accelerator."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            f"{self._placeholder_name} has no stand-in on CPU, so this rehearsal stops here rather than compute "
            "something else. Leave out the option that selects this fused operator, or run on the accelerator."
        )


def _attribute(name: str) -> Placeholder:
    """Return the placeholder for a dotted name: operators must not be called, everything else may."""
    leaf = name.rpartition(".")[2]
    return AbsentOperator(name) if leaf.startswith(("npu_", "_npu_")) else Placeholder(name)


class PlaceholderModule(ModuleType):
    """A module whose every attribute exists."""

    def __getattr__(self, key: str) -> Any:
        if key.startswith("__") and key.endswith("__"):
            raise AttributeError(key)
        value = _attribute(f"{self.__name__}.{key}")
        setattr(self, key, value)
        return value


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the given top-level packages and all their submodules."""

    def __init__(self, versions: Mapping[str, str]) -> None:
        self.versions = versions

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] not in self.versions:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = PlaceholderModule(spec.name)
        vars(module)["__version__"] = self.versions[spec.name.partition(".")[0]]
        module.__file__ = f"<placeholder>/{spec.name.replace('.', '/')}/__init__.py"
        return module

    def exec_module(self, module: ModuleType) -> None:
        return None


def provide(versions: Mapping[str, str]) -> None:
    """Make the packages in ``versions`` (name to reported version) importable as placeholders.

    They hide an installed package of the same name: half of such a stack (its Python part without its driver) fails
    later and less clearly.
    """
    sys.meta_path.insert(0, _Finder(versions))
