"""Files and folders of runs that only their user can read: plans and logs repeat what a job was started with."""

import os
from pathlib import Path

FOLDER, FILE, PROGRAM = 0o700, 0o600, 0o700
_OTHERS = 0o077


def make_folder(path: Path) -> None:
    """Create a folder of our own, or take others' rights from the one that is there; those above it stay as they are.

    Raises:
        OSError: it cannot be created.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(mode=FOLDER, exist_ok=True)
    tighten(path)


def tighten(path: Path) -> bool:
    """Take the rights of others from a file or folder of ours, and tell whether they had any."""
    found = path.lstat()
    if found.st_uid != os.getuid() or not found.st_mode & _OTHERS or path.is_symlink():
        return False
    path.chmod(found.st_mode & ~_OTHERS & 0o777)
    return True


def opener(path: str, flags: int) -> int:
    """Open a file, created so that only its user can read it; for the built-in `open`."""
    return os.open(path, flags, FILE)


def write(path: Path, text: str, mode: int = FILE) -> None:
    """Write a file beside its place, never readable for others, and rename it.

    Raises:
        OSError: it cannot be written.
    """
    with open(beside(path), "w", encoding="utf-8", opener=opener) as file:
        os.fchmod(file.fileno(), mode)
        file.write(text)
    beside(path).replace(path)


def beside(path: Path) -> Path:
    """Return where a file is written before it is renamed."""
    return path.with_name(f".{path.name}.{os.getpid()}")
