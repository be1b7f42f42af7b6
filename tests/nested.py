"""Arguments with dotted keys as Hydra nests them."""

from typing import Any


def nested(name: str, value: Any) -> dict[str, Any]:
    """Return `{a: {b: value}}` for `a.b`."""
    *sections, last = name.split(".")
    tree = {last: value}
    for section in reversed(sections):
        tree = {section: tree}
    return tree
