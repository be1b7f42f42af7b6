"""What validation changes in a real namespace, as plain data: the destinations whose value differs, before and after.

Imported by the children that run upstream's code, so it imports nothing of ours.
"""

import copy
import enum
from collections.abc import Mapping
from typing import Any

_DTYPES = {"torch.float32": "fp32", "torch.bfloat16": "bf16", "torch.float16": "fp16", "torch.uint8": "fp8"}


def snapshot(args: Any) -> dict[str, Any]:
    """Return a copy of a parsed namespace that validation cannot change."""
    return {name: copy.deepcopy(value) for name, value in vars(args).items()}


def own_lists(args: Any) -> None:
    """Give a namespace lists of its own: a parser that is used again would keep what validation appends."""
    for name, value in vars(args).items():
        if isinstance(value, list):
            setattr(args, name, list(value))


def changed(parsed: Mapping[str, Any], args: Any, config: Any) -> dict[str, list[Any]]:
    """Return the parser's value and the last one, by destination, where they differ and both are plain data.

    The last one is the configuration's where it has a field of that name. Destinations that validation deletes, and
    those that hold objects, have none.
    """
    found: dict[str, list[Any]] = {}
    for name, before in parsed.items():
        if not hasattr(args, name):
            continue
        after = getattr(config, name) if hasattr(config, name) else getattr(args, name)
        try:
            values = [_plain(before), _plain(after)]
        except TypeError:
            continue
        if values[0] != values[1]:
            found[name] = values
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return value.name
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if str(value) in _DTYPES:
        return _DTYPES[str(value)]
    raise TypeError(type(value))
