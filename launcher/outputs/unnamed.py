"""Errors of writing to an open file name no path: a full disk, for example."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_OF_DISKS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


@contextmanager
def written_below(folder: Path) -> Iterator[None]:
    """Name a folder in errors of a disk that name no file."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno in _OF_DISKS:
            error.filename = str(folder)
        raise
