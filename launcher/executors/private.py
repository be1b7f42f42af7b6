"""Files and folders of runs that only their user can read: plans and logs repeat the job's settings."""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

FOLDER, FILE, PROGRAM = 0o700, 0o600, 0o700
_OTHERS = 0o077
_LONGEST = 4_000_000
_FULL = (errno.ENOSPC, errno.EDQUOT)


def make_folder(path: Path) -> None:
    """Create a private folder, or remove others' permissions from an existing one; parent folders are unchanged.

    Raises:
        OSError: it cannot be created.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(mode=FOLDER, exist_ok=True)
    tighten(path)


def tighten(path: Path) -> bool:
    """Remove others' permissions from a file or folder of this user, and return whether there were any."""
    found = path.lstat()
    if found.st_uid != os.getuid() or not found.st_mode & _OTHERS or path.is_symlink():
        return False
    path.chmod(found.st_mode & ~_OTHERS & 0o777)
    return True


def opener(path: str, flags: int) -> int:
    """Open a file, created so that only its user can read it; for the built-in `open`."""
    return os.open(path, flags, FILE)


def write(path: Path, text: str, mode: int = FILE) -> None:
    """Write a file to a temporary name, never readable for others, and rename it.

    Raises:
        OSError: it cannot be written.
    """
    try:
        with open(temporary_name(path), "w", encoding="utf-8", opener=opener) as file:
            os.fchmod(file.fileno(), mode)
            file.write(text)
    except OSError as error:
        temporary_name(path).unlink(missing_ok=True)
        if error.errno not in _FULL or not path.is_file() or path.is_symlink():
            raise
        _overwrite(path, text)
    else:
        temporary_name(path).replace(path)


def _overwrite(path: Path, text: str) -> None:
    """Write into the blocks that a file has: a full disk gives no other, and how a run ended must not be lost."""
    data = text.encode()
    with open(path, "r+b", buffering=0) as file:
        file.write(data)
        file.truncate(len(data))


def open_to_read(path: Path) -> BinaryIO:
    """Open a file of a run, which may be another user's: a named pipe would block, a device may have no end.

    Raises:
        OSError: there is no regular file that this user can read.
    """
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return os.fdopen(file, "rb")


def read(path: Path) -> str:
    """Return the text of a small file of a run.

    Raises:
        OSError: it cannot be read, or is far larger than what this program writes.
    """
    with open_to_read(path) as stream:
        data = stream.read(_LONGEST + 1)
    if len(data) > _LONGEST:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    return data.decode("utf-8", "replace")


def is_own(path: Path) -> bool:
    """Return whether a file or folder is this user's; a link counts for itself."""
    try:
        return path.lstat().st_uid == os.getuid()
    except OSError:
        return False


def temporary_name(path: Path) -> Path:
    """Return the temporary name under which a file is written before it is renamed."""
    return path.with_name(f".{path.name}.{os.getpid()}")
