"""Registers the modules of a stand-in in ``sys.modules`` under the names of the package that it replaces."""

import importlib.machinery
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

_MARK = "__rehearsal_stand_in__"


def register_package(package: str, see: str, table: Mapping[str, Mapping[str, Any]]) -> None:
    """Make ``import package`` find a stand-in in this process; no effect when called again.

    Args:
        see: module that documents it.
        table: module below the package ("": itself) to its names; a parent stands before its children.

    Raises RuntimeError where the real package has been imported already.
    """
    present = sys.modules.get(package)
    if present is not None:
        if getattr(present, _MARK, False):
            return
        raise RuntimeError(f"a real {package} is already imported: the stand-in must come first")
    for below, contents in table.items():
        _register(f"{package}.{below}" if below else package, see, contents)
    setattr(sys.modules[package], _MARK, True)


def _register(name: str, see: str, contents: Mapping[str, Any]) -> None:
    module = ModuleType(name, f"Stand-in of a CPU rehearsal; see {see}.")
    module.__spec__ = importlib.machinery.ModuleSpec(name, loader=None, is_package=True)
    module.__path__ = []
    vars(module).update(contents)
    sys.modules[name] = module
    parent, _, leaf = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], leaf, module)
