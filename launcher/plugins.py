"""Plug-ins of other distributions, by entry point: backends and executors.

They are read on first use: reading the metadata of all installed distributions takes longer than a translation.
"""

import os
import sys
from collections.abc import Collection
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

# Top-level module of each loaded plug-in, and how messages name the plug-in.
_LOADED: dict[str, str] = {}


class BrokenPlugin(Exception):
    """A plug-in that cannot be used; the message names it, its distribution and the reason."""

    def __init__(self, plugin: str, reason: str) -> None:
        super().__init__(f"{plugin} {reason}")


@cache
def plugins(group: str) -> dict[str, "EntryPoint"]:
    """Return the entry points of a group by name; the first distribution on the path counts, as for imports."""
    from importlib.metadata import entry_points

    return {point.name: point for point in reversed(tuple(entry_points(group=group)))}


def names(group: str, built_in: Collection[str]) -> list[str]:
    """Return the names of plug-ins besides the built-in ones; none is imported."""
    found = _declared(group)
    return [] if found is not None and found <= set(built_in) else sorted(set(plugins(group)) - set(built_in))


def has(group: str, name: str) -> bool:
    """Return whether a distribution declares a plug-in of this name, a built-in one included; none is imported."""
    found = _declared(group)
    return (found is None or name in found) and name in plugins(group)


def _declared(group: str) -> set[str] | None:
    """Return the names of a group in the folders of the path; None where distributions may be found in another way.

    `entry_points` reads the metadata of every distribution: 20 times as long, and most machines have no plug-in.
    """
    from importlib.machinery import PathFinder

    if any(finder is not PathFinder and hasattr(finder, "find_distributions") for finder in sys.meta_path):
        return None
    declared = set()
    for folder in sys.path:
        if not isinstance(folder, str):  # a Path: not searched for modules, and for distributions
            return None
        try:
            found = os.listdir(folder or ".")
        except NotADirectoryError:
            return None  # an archive
        except OSError:
            continue  # Python, too, ignores folders that it cannot read
        if folder.endswith(".egg") or any(name.endswith(".egg") for name in found):
            return None
        for name in found:
            if name.endswith((".dist-info", ".egg-info")):
                declared |= _names_in(os.path.join(folder, name, "entry_points.txt"), group)
    return declared


def _names_in(path: str, group: str) -> set[str]:
    """Return the names of a group in an entry_points.txt, if there is one."""
    try:
        with open(path, "rb", buffering=0) as file:
            data = file.read()
        # Most have other groups: decoding them takes longer than reading them.
        lines = data.decode().splitlines() if group.encode() in data else []
    except (OSError, ValueError):
        return set()
    names, section = set(), ""
    for line in map(str.strip, lines):
        if line.startswith("["):
            section = line.strip("[]")
        elif section == group and "=" in line and not line.startswith("#"):
            names.add(line.partition("=")[0].strip())
    return names


def load(group: str, name: str, kind: type) -> Any:
    """Import a plug-in.

    Raises:
        KeyError: no distribution declares it.
        BrokenPlugin: it cannot be imported, is not an instance of `kind`, or has another name.
    """
    point = plugins(group)[name]
    plugin = title(group, name)
    try:
        found = point.load()
    except (Exception, SystemExit) as error:
        raise BrokenPlugin(plugin, f"cannot be imported: {reason(error)}") from error
    if not isinstance(found, kind):
        wanted = f"{kind.__module__}.{kind.__qualname__}"
        raise BrokenPlugin(plugin, f"is no plug-in: {point.value} is of type {type(found).__name__}, not {wanted}")
    own = getattr(found, "name", None)
    if own != name:
        same = f"the entry point and {kind.__name__}.name must be the same"
        raise BrokenPlugin(plugin, f"calls itself {own!r}: {same}")
    _LOADED[point.module.partition(".")[0]] = plugin
    return found


def title(group: str, name: str) -> str:
    """Return how messages name a plug-in."""
    point = plugins(group)[name]
    dist = point.dist
    whose = f"distribution {dist.name} {dist.version}" if dist is not None else f"module {point.module}"
    return f"{group.rpartition('.')[2].removesuffix('s')} {name!r} ({whose})"


def culprit(error: BaseException) -> str:
    """Return the loaded plug-in in whose code an exception was raised; "" if it was in none."""
    import traceback

    found = ""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        found = _LOADED.get(str(frame.f_globals.get("__name__", "")).partition(".")[0], found)
    return found


def reason(error: BaseException) -> str:
    """Return an exception in one line, with the innermost file and line."""
    import traceback

    message = " ".join(str(error).split())
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<")]
    where = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}{': ' if message else ''}{message}{where}"
