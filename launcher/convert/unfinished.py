"""Marks the folder of a conversion that has not written every tensor, so that no program loads it.

Until the last tensor is written, files without tensors (config.json, `.metadata`, latest_checkpointed_iteration.txt)
have a suffix, also after a renaming of the folder.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from launcher.convert.containers.errors import ConvertError

SUFFIX = ".unfinished"
_MARK = "conversion" + SUFFIX


def mark(folder: Path, tensors: Collection[Path]) -> None:
    """Mark a folder whose files exist but have no content yet.

    Args:
        tensors: the files that hold tensors.
    """
    for path in [each for each in folder.rglob("*") if each.is_file() and each not in tensors]:
        path.rename(path.with_name(path.name + SUFFIX))
    (folder / _MARK).touch()


def unmark(folder: Path) -> None:
    """Give the files of a folder their names: every tensor is written. A second time it does nothing."""
    for path in list(folder.rglob(f"*{SUFFIX}")):
        if path.name != _MARK:
            path.rename(path.with_name(path.name.removesuffix(SUFFIX)))
    (folder / _MARK).unlink(missing_ok=True)


def sizes(folder: Path) -> dict[str, int]:
    """Return the bytes of each file below a folder, by the name that it will have once every tensor is written."""
    found = {path: path.stat().st_size for path in folder.rglob("*") if path.is_file() and path.name != _MARK}
    return {path.relative_to(folder).as_posix().removesuffix(SUFFIX): size for path, size in found.items()}


def refuse_unfinished(path: Path) -> None:
    """Raise ConvertError for a folder that a conversion has not finished, or one within it."""
    for folder in (path, path.parent):
        if (folder / _MARK).exists():
            raise ConvertError(
                f"{folder}: an interrupted conversion: not all of its tensors are written\n"
                "  works: run the same launch convert command again, which continues it"
            )
