"""A module of the standard library that is imported when something of it is first used."""

import sys
from _thread import RLock
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from types import ModuleType

_LOCK = RLock()
_BEING_IMPORTED: set[str] = set()


class LateModule(ModuleType):
    """A module until a name is looked up that it does not have yet; then its code is run, and it is like any other.

    importlib.util.LazyLoader's modules run at the second `import NAME` already, which reads `__spec__`.
    """

    def __getattr__(self, name: str) -> object:
        self._import()
        try:
            return self.__dict__[name]
        except KeyError:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}") from None

    def __dir__(self) -> list[str]:
        self._import()
        return sorted(self.__dict__)

    def _import(self) -> None:
        # Other threads wait here until all of it is there; code that it runs itself may ask for it meanwhile.
        with _LOCK:
            if self.__class__ is not LateModule or self.__name__ in _BEING_IMPORTED:
                return
            _BEING_IMPORTED.add(self.__name__)
            try:
                self.__spec__.loader.exec_module(self)  # type: ignore[union-attr]
                self.__class__ = ModuleType  # type: ignore[assignment]
            finally:
                _BEING_IMPORTED.discard(self.__name__)


def import_late(name: str) -> None:
    """Import a module when it is first used, unless it has been imported."""
    spec = None if name in sys.modules else PathFinder.find_spec(name)
    if spec is not None and spec.loader is not None:
        made = module_from_spec(spec)
        made.__class__ = LateModule
        sys.modules[name] = made
