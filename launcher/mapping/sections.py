"""Nested configuration files as arguments with dotted keys."""

from collections.abc import Collection, Iterator, Mapping

from launcher.job import Value


def flattened(tree: Mapping[str, Value], values: Collection[str], prefix: str = "") -> Iterator[tuple[str, Value]]:
    """Yield (dotted key, value) of a nested file or section.

    Args:
        values: dotted keys whose mapping is a value; an empty mapping, and one with a dot in a key, are values, too.
    """
    for name, node in tree.items():
        key = f"{prefix}{name}"
        is_section = isinstance(node, Mapping) and node and key not in values
        if is_section and not any("." in str(each) for each in node):
            yield from flattened(node, values, f"{key}.")
        else:
            yield key, node
