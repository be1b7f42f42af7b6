"""Errors of checkpoint files, with messages for the user."""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

_LONGEST = 200
_SHOWN = 20


class ConvertError(Exception):
    """A conversion that cannot be done or verified; `problems` holds one message for the user each."""

    def __init__(self, problems: Sequence[str] | str) -> None:
        self.problems = (problems,) if isinstance(problems, str) else tuple(problems)
        shown = list(self.problems[:_SHOWN])
        if len(self.problems) > _SHOWN:
            shown.append(f"… and {len(self.problems) - _SHOWN} more")
        super().__init__("\n".join(shown))


def shown(value: object) -> str:
    """Return file content as text for a message: shortened, without control characters."""
    text = str(value)
    text = text if len(text) <= _LONGEST else text[:_LONGEST] + "…"
    return text if text.isprintable() else ascii(text)


class ContainerError(ConvertError):
    """A checkpoint file that cannot be read or written; names the file, the tensor, and expected and found values."""

    def __init__(
        self,
        path: Path,
        problem: str,
        *,
        tensor: str | None = None,
        expected: object = None,
        found: object = None,
        works: str | None = None,
    ) -> None:
        parts = [f"{path}: " + (f"tensor {shown(tensor)}: " if tensor is not None else "") + problem]
        if expected is not None or found is not None:
            parts.append(f"  expected {shown(expected)}, found {shown(found)}")
        if works:
            parts.append(f"  works: {works}")
        super().__init__("\n".join(parts))
        self.path = path
        self.tensor = tensor


class Damaged(ContainerError):
    """A truncated, corrupt or inconsistent file: its bytes violate the format."""


class Unsafe(ContainerError):
    """A pickle that names something outside the list of allowed classes; nothing of it was executed."""


class Unsupported(ContainerError):
    """A valid file that this program does not support."""


class Unwritable(ContainerError):
    """A target that cannot be written: not empty, in use, or on a disk without enough space."""


_SPACE: Final = "more space on this file system"
# Error of a write to what helps.
_REMEDIES: Final[Mapping[int, str]] = {
    errno.ENOSPC: _SPACE,
    errno.EDQUOT: f"{_SPACE}, or a higher quota",
    errno.EFBIG: "a higher limit of file sizes (ulimit -f), or a file system that holds files of this size",
}


def is_full(error: OSError) -> bool:
    """Return whether a write failed for want of space, of quota, or for a limit of file sizes."""
    return error.errno in _REMEDIES


def unwritable(path: Path, error: OSError, *, what: str = "cannot be written", resumes: bool = True) -> Unwritable:
    """Return the error of a failed write, with what helps.

    Args:
        resumes: the same command continues where this one stops; else it starts anew.
    """
    works = _REMEDIES.get(error.errno or 0)
    after = "; the same command continues where it stopped" if resumes else ""
    return Unwritable(path, f"{what}: {error.strerror}", works=f"{works}{after}" if works else None)
