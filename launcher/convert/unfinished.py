"""Marks a folder of which not every tensor is written, so that nothing loads it: its tensors have holes.

Until the last tensor is written, files without tensors (config.json, `.metadata`, the tracker) have another ending, so
that other programs do not load the folder either, also under another name.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from launcher.convert.containers.errors import ConvertError

ENDING = ".unfinished"
_MARK = "conversion" + ENDING


def mark(folder: Path, tensors: Collection[Path]) -> None:
    """Mark a folder whose files exist but have no content yet.

    Args:
        tensors: the files that hold tensors.
    """
    for path in [each for each in folder.rglob("*") if each.is_file() and each not in tensors]:
        path.rename(path.with_name(path.name + ENDING))
    (folder / _MARK).touch()


def unmark(folder: Path) -> None:
    """Give the files of a folder their names: every tensor is written. A second time it does nothing."""
    for path in list(folder.rglob(f"*{ENDING}")):
        if path.name != _MARK:
            path.rename(path.with_name(path.name.removesuffix(ENDING)))
    (folder / _MARK).unlink(missing_ok=True)


def refuse_unfinished(path: Path) -> None:
    """Raise ConvertError for a folder that a conversion has not finished, or one within it."""
    for folder in (path, path.parent):
        if (folder / _MARK).exists():
            raise ConvertError(
                f"{folder}: a conversion that has not ended: not all of its tensors are written\n"
                "  works: the same command again, which continues it"
            )
