"""What Megatron-LM makes of arguments that only stand for others; facts for comparing command lines."""

from collections.abc import Mapping
from typing import Any

# Accepted and ignored: --use-mcore-models (arguments.py:1746 @0.12.1, `deprecated_use_mcore_models`).
_IGNORED = ("use-mcore-models",)
# Flag to the argument and value that validate_args sets (arguments.py:811 @0.12.1).
_STANDS_FOR = {"use-rotary-position-embeddings": ("position-embedding-type", "rope")}


def effective(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments without deprecated spellings."""
    found = {flag: value for flag, value in values.items() if flag not in _IGNORED and flag not in _STANDS_FOR}
    for flag, (name, value) in _STANDS_FOR.items():
        if values.get(flag):
            found[name] = value
    return found
