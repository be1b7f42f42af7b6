"""What completion reads from the file system: paths, options of groups, ids of runs."""

import os
from collections.abc import Collection, Iterator, Sequence

YAML = (".yaml", ".yml")
# More entries of one folder are of no use to anybody at a prompt.
_MOST = 2000


def paths(
    prefix: str, *, folders: bool = False, suffixes: Collection[str] = (), hidden: bool = False
) -> Iterator[tuple[str, str]]:
    """Yield the paths that continue a typed one; folders end in `/`. `~/` stays as it is typed.

    Args:
        prefix: typed so far.
        folders: only folders.
        suffixes: only files whose names end so, and folders; empty: all.
        hidden: also names that begin with a dot, where no dot is typed.
    """
    typed, slash, start = prefix.rpartition("/")
    place = os.path.expanduser(typed + slash) if typed.startswith("~") else (typed + slash or ".")
    try:
        with os.scandir(place) as entries:
            names = sorted((entry.name, _is_folder(entry)) for entry in entries if entry.name.startswith(start))
    except (OSError, ValueError):
        return
    for name, is_folder in names[:_MOST]:
        if (name.startswith(".") and not (start or hidden)) or not _is_plain(name):
            continue
        if is_folder:
            yield f"{typed}{slash}{name}/", ""
        elif not folders and (not suffixes or name.endswith(tuple(suffixes))):
            yield f"{typed}{slash}{name}", ""


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _is_plain(name: str) -> bool:
    """Return whether a shell's completion can hold a name: no control characters, no bytes that are not UTF-8."""
    return name.isprintable()


def options(folders: Sequence[str]) -> Iterator[str]:
    """Yield the names of the YAML files of a group's folders."""
    for folder in folders:
        try:
            names = os.listdir(folder)
        except OSError:
            continue  # no candidates there; the verb reports the folder
        yield from sorted(name[: -len(".yaml")] for name in names if name.endswith(".yaml") and _is_plain(name))


def _is_run(name: str) -> bool:
    return name.endswith(".json") and _is_plain(name)


def runs() -> list[str]:
    """Return the ids of this user's runs, the newest first."""
    # Only here: it takes as long as the rest of a completion.
    from launcher.executors.register import home

    try:
        with os.scandir(home() / "runs") as entries:
            found = [(entry.stat().st_mtime_ns, entry.name) for entry in entries if _is_run(entry.name)]
    except OSError:
        return []
    return [name.removesuffix(".json") for _, name in sorted(found, reverse=True)[:_MOST]]
