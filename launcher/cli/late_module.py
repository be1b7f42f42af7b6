"""A module of the standard library that is imported when something of it is first used."""

import sys
from _thread import RLock
from importlib import import_module
from types import ModuleType


class LateModule(ModuleType):
    """What `import NAME` returns until something reads a name of the module; it is imported then, once.

    importlib.util.LazyLoader would import it at the second `import NAME` already, which reads `__spec__`.
    """

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        with _LOCK:
            if sys.modules.get(self.__name__) is self:
                del sys.modules[self.__name__]
            return getattr(import_module(self.__name__), name)


_LOCK = RLock()


def import_late(name: str) -> None:
    """Import a module when it is first used, unless it has been imported."""
    sys.modules.setdefault(name, LateModule(name))
