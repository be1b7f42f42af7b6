"""The names of math_verify for ms-swift's reward accuracy, where it is not installed: no text has a formula."""

import importlib.machinery
import importlib.util
import sys
from types import ModuleType
from typing import Any

_PACKAGES = ("math_verify", "latex2sympy2_extended")


def register() -> None:
    """Make ``import math_verify`` find the names that ms-swift 4.6.0 imports (swift/rewards/orm.py:79)."""
    if importlib.util.find_spec(_PACKAGES[0]) is not None:
        return

    def settings(**_kwargs: Any) -> None:
        return None

    def parse(_text: str, **_kwargs: Any) -> list[Any]:
        return []

    def verify(_gold: Any, _answer: Any) -> bool:
        return False

    contents: dict[str, dict[str, Any]] = {
        _PACKAGES[0]: {"LatexExtractionConfig": settings, "parse": parse, "verify": verify},
        _PACKAGES[1]: {"NormalizationConfig": settings},
    }
    for name, names in contents.items():
        module = ModuleType(name, f"Stand-in of a CPU rehearsal; see {__name__}.")
        module.__spec__ = importlib.machinery.ModuleSpec(name, loader=None)
        vars(module).update(names)
        sys.modules[name] = module
