"""Runs a fix right after an upstream module is loaded, so that upstream's import order is never changed."""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType

Fix = Callable[[ModuleType], None]


class _FixingLoader(importlib.abc.Loader):
    """Delegates to the real loader and applies the fixes once the module is complete."""

    def __init__(self, loader: importlib.abc.Loader, fixes: list[Fix]) -> None:
        self.loader = loader
        self.fixes = fixes

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self.loader.exec_module(module)
        for fix in self.fixes:
            fix(module)

    def __getattr__(self, name: str) -> object:
        return getattr(self.loader, name)


class _FixingFinder(importlib.abc.MetaPathFinder):
    """Wraps the loader of every module that has a fix; does not find modules itself."""

    def __init__(self) -> None:
        self.fixes: dict[str, list[Fix]] = {}
        self.asking: set[str] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self.fixes or fullname in self.asking:
            return None
        self.asking.add(fullname)
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self.asking.discard(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _FixingLoader(spec.loader, self.fixes[fullname])
        return spec


_FINDER = _FixingFinder()


def after_import(name: str, fix: Fix) -> None:
    """Call ``fix(module)`` once the module ``name`` has been loaded; at once where it has been already.

    ``name`` is a dotted module name; a module that is never imported costs nothing. Names that other modules bound with
    ``from name import attribute`` before this call keep their old value, so call it before upstream is imported.
    """
    module = sys.modules.get(name)
    if module is not None:
        fix(module)
        return
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)
    _FINDER.fixes.setdefault(name, []).append(fix)
