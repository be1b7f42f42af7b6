"""Where a conversion writes: beside its target, locked, journalled, and renamed when it is complete.

Under the target's own name there is at every moment what was there before, the whole result, or (an instant between two
renames with `overwrite`) nothing; the next start on this target puts the old one back in that case.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from launcher.convert.containers.errors import Unwritable
from launcher.convert.containers.journal import Journal

_PARTIAL = ".partial"
_JOURNAL = ".partial.journal"
_REPLACED = ".replaced-by-convert"
_BLOCK = 512  # st_blocks counts these


class Workplace:
    """The partial directory of a target; leaving it by an exception keeps it for the next start with the same digest.

    `digest` identifies the plan and its sources. Unwritable where the target is not empty (unless `overwrite`), where
    another process writes it, or where the partial directory is somebody else's.
    """

    def __init__(self, target: Path, *, digest: str, overwrite: bool = False) -> None:
        self.target = Path(os.path.realpath(target))
        self.directory = self._beside(_PARTIAL)
        self._overwrite = overwrite
        self._published = False
        if not self.target.name:
            raise Unwritable(self.target, "not a directory to make")
        self._make_parent()
        known = self._beside(_JOURNAL).exists()
        self._journal = Journal(self._beside(_JOURNAL))
        try:
            self.resumed = self._start(digest, known)
        except BaseException:
            self._journal.close(remove=not known)
            raise
        self.finished = frozenset(self._journal.progress.finished if self.resumed else ())
        self.layout: Any = self._journal.progress.layout if self.resumed else None

    def _beside(self, ending: str) -> Path:
        return self.target.with_name(self.target.name + ending)

    def _make_parent(self) -> None:
        _check_parent(self.target)
        with _or_unwritable(self.target.parent, "cannot be made"):
            self.target.parent.mkdir(parents=True, exist_ok=True)

    def _start(self, digest: str, known: bool) -> bool:
        exists = self.directory.exists() or self.directory.is_symlink()
        with _or_unwritable(self.target, "cannot be put back"):
            self._put_back(exists)
        check_target(self.target, overwrite=self._overwrite)
        if exists and not known:
            raise Unwritable(self.directory, "is in the way, and no conversion of this program left it")
        progress = self._journal.progress
        if exists and progress.digest == digest and progress.layout is not None:
            self._journal.resume()
            return True
        with _or_unwritable(self.directory, "cannot be made"):
            if exists:
                shutil.rmtree(self.directory)
            self.directory.mkdir()
        self._journal.restart(digest)
        return False

    def _put_back(self, unfinished: bool) -> None:
        """Undo or finish an overwriting that was interrupted between its two renames."""
        replaced = self._beside(_REPLACED)
        if not replaced.exists():
            return
        if not _holds_something(self.target):
            _remove_empty(self.target)
            os.rename(replaced, self.target)
        elif unfinished:
            works = "keep one of the two under this name and remove the other"
            raise Unwritable(self.target, f"is there again, and its old content is in {replaced}", works=works)
        else:
            shutil.rmtree(replaced)

    def __enter__(self) -> Workplace:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._published and self.layout is None:
            self.discard()
        self._journal.close(remove=self._published)

    def check_space(self, bytes_needed: int, files_needed: int) -> None:
        """Compare what will be written with the space and inodes of the file system; Unwritable with both numbers."""
        check_space(self.target, bytes_needed, files_needed)

    def laid_out(self, layout: Any) -> None:
        """Note that every file exists in full size, with what is needed to find the tensors in them (JSON)."""
        self.sync()
        self._journal.laid_out(layout)
        self.layout = layout

    def finish(self, names: Iterable[str]) -> None:
        """Note tensors whose bytes are all written; any thread may call this, nothing is flushed."""
        self._journal.finish(names)

    def sync(self, paths: Iterable[Path] | None = None) -> None:
        """Flush the files (all of them where none are named) to the disk and note that what is finished is safe."""
        position = self._journal.position()
        for path in _files(self.directory) if paths is None else paths:
            _flush(path)
        _flush_directories(self.directory)
        self._journal.synced(position)

    def publish(self, *, durable: bool = True) -> Path:
        """Rename the directory to the target's name; where one was overwritten it goes only after that."""
        if durable:
            self.sync()
        self._journal.complete()
        replaced = self._beside(_REPLACED)
        with _or_unwritable(self.target, "cannot be replaced"):
            if _holds_something(self.target):
                os.rename(self.target, replaced)
            else:
                _remove_empty(self.target)
            os.rename(self.directory, self.target)
        self._published = True
        _flush(self.target.parent)
        shutil.rmtree(replaced, ignore_errors=True)
        return self.target

    def discard(self) -> None:
        """Remove what was written so far, and the journal with it."""
        shutil.rmtree(self.directory, ignore_errors=True)
        self._published = True


def check_target(target: Path, *, overwrite: bool) -> None:
    """Refuse a target that cannot become the result; nothing is made or written.

    Raises:
        Unwritable: it is no folder, is in use as something else, holds something, or may not be written.
    """
    if target.exists() and not target.is_dir():
        raise Unwritable(target, "is in the way: not a directory", works="another target")
    if target.is_mount():
        raise Unwritable(target, "is a mount point and cannot be renamed", works="a directory inside it")
    if not overwrite and _holds_something(target):
        found = sorted(entry.name for entry in target.iterdir())[:3]
        works = "an empty or new directory, or --overwrite"
        raise Unwritable(target, "not empty", expected="nothing", found=", ".join(found), works=works)
    _check_parent(target)


def _check_parent(target: Path) -> None:
    parent = existing_parent(target)
    if not parent.is_dir():
        raise Unwritable(target, f"{parent} is in the way: not a directory", works="another target")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise Unwritable(target, f"{parent} may not be written", works="another target")


def check_space(target: Path, bytes_needed: int, files_needed: int) -> None:
    """Compare what will be written with the space and inodes of the file system; Unwritable with both numbers."""
    parent = existing_parent(target)
    there = os.statvfs(parent)
    here, files_here = _allocated(target.with_name(target.name + _PARTIAL))
    free = there.f_bavail * there.f_frsize + here
    if bytes_needed > free:
        expected = f"{_gigabytes(bytes_needed)} ({bytes_needed} bytes)"
        found = f"{_gigabytes(free)} free ({free} bytes)"
        works = "a target on another file system, or more space on this one"
        raise Unwritable(parent, "not enough space", expected=expected, found=found, works=works)
    if there.f_files and files_needed > there.f_favail + files_here:
        expected, found = f"{files_needed} files", f"{there.f_favail} free inodes"
        raise Unwritable(parent, "not enough inodes", expected=expected, found=found)


def existing_parent(target: Path) -> Path:
    """Return the nearest folder above a target that is there."""
    return next(folder for folder in target.absolute().parents if folder.exists())


@contextlib.contextmanager
def _or_unwritable(path: Path, problem: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Unwritable(path, f"{problem}: {error.strerror}") from None


def _holds_something(directory: Path) -> bool:
    return directory.is_dir() and any(directory.iterdir())


def _remove_empty(directory: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        directory.rmdir()


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.2f} GB"


def _files(directory: Path) -> list[Path]:
    return [Path(folder) / name for folder, _, names in os.walk(directory) for name in names]


def _allocated(directory: Path) -> tuple[int, int]:
    """Return the bytes and files that the partial directory already holds; holes are not counted."""
    sizes = [path.stat().st_blocks * _BLOCK for path in _files(directory)]
    return sum(sizes), len(sizes)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if path.is_dir() and error.errno == errno.EINVAL:
            return  # some network file systems flush files only
        raise Unwritable(path, f"cannot be flushed to the disk: {error.strerror}") from None
    finally:
        os.close(descriptor)


def _flush_directories(directory: Path) -> None:
    for folder, _, _ in os.walk(directory):
        _flush(Path(folder))
