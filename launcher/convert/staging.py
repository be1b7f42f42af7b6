"""Staging folder of a conversion: checked for space, written as OUT.partial, renamed when complete.

At any time the target's name holds its previous content, the complete result, or (between two renames with
`overwrite`) nothing; in that case the next start restores the previous content. A replaced folder is first renamed to
a sibling of the target, and removed entry by entry after the result has the target's name.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from launcher.convert.containers.errors import Unwritable, is_full, unwritable
from launcher.convert.journal import Journal, ReplacedFolder
from launcher.convert.unfinished import sizes
from launcher.outputs.contents import Contents, Judge, first_entries, remove
from launcher.outputs.free import free_path
from launcher.outputs.protected import located, reason_against

_PARTIAL = ".partial"
_JOURNAL = ".partial.journal"
_REPLACED = ".replaced-by-convert"
_BLOCK = 512  # unit of st_blocks


def _nothing_known(folder: Path) -> Contents:
    return Contents(foreign=first_entries(folder))


class Staging:
    """The partial directory of a target; an exception keeps it for the next start with the same digest.

    `digest` identifies the plan and its sources. Unwritable if the target is not empty (unless `overwrite` is set and
    `judge` finds nothing else that would be lost), if another process writes it, or if the partial directory was not
    made by this program.

    Attributes:
        left: the digest of an interrupted conversion that was not continued because its digest differs.
        lost: a file of an interrupted conversion that was not continued because it is gone or has another size.
        restored: the target was restored after an interrupted overwrite had renamed it.
        kept: where the replaced folder is kept; None if nothing was replaced, or if it was removed.
    """

    def __init__(self, target: Path, *, digest: str, overwrite: bool = False, judge: Judge = _nothing_known) -> None:
        self.target = located(target)
        self.directory = self._sibling(_PARTIAL)
        self._digest, self._overwrite, self._judge = digest, overwrite, judge
        self._published = self._cleaned = False
        self.left: str | None = None
        self.lost: str | None = None
        self.restored = False
        self.kept: Path | None = None
        if not self.target.name:
            raise Unwritable(self.target, "cannot be created as a directory")
        self._make_parent()
        known = self._sibling(_JOURNAL).exists()
        self._journal = Journal(self._sibling(_JOURNAL))
        try:
            self.resumed = self._start(digest, known)
        except BaseException:
            self._journal.close(remove=not known or _is_obsolete(self._journal, self.target))
            raise
        self.finished = frozenset(self._journal.progress.finished if self.resumed else ())
        self.notes: dict[str, Any] = self._journal.progress.notes if self.resumed else {}
        self.layout: Any = self._journal.progress.layout if self.resumed else None

    def _sibling(self, ending: str) -> Path:
        return self.target.with_name(self.target.name + ending)

    def _make_parent(self) -> None:
        _check_parent(self.target)
        with _or_unwritable(self.target.parent, "cannot be created"):
            self.target.parent.mkdir(parents=True, exist_ok=True)

    def _start(self, digest: str, known: bool) -> bool:
        exists = os.path.lexists(self.directory)
        progress = self._journal.progress
        with _or_unwritable(self.target, "cannot be restored"):
            self._recover(exists)
        check_target(self.target, overwrite=self._overwrite, judge=self._judge)
        ours = known and (progress.digest is not None or not _holds_something(self.directory))
        if exists and (not ours or self.directory.is_symlink()):
            raise Unwritable(self.directory, "exists, and was not left by a conversion")
        if exists and progress.digest == digest and progress.layout is not None:
            found = sizes(self.directory)
            self.lost = next((name for name, size in progress.files.items() if found.get(name) != size), None)
            if self.lost is None:
                self._journal.resume()
                return True
        self.left = progress.digest if exists and progress.digest != digest else None
        # First, so that later removals and creations are never matched with the previous journal entries.
        self._journal.restart(digest)
        with _or_unwritable(self.directory, "cannot be created"):
            if exists:
                shutil.rmtree(self.directory)
            self.directory.mkdir()
        return False

    def _recover(self, unfinished: bool) -> None:
        """Undo or finish an overwrite that was interrupted after its first rename."""
        replaced = self._journal.progress.replaced
        folder = None if replaced is None else self.target.with_name(replaced.name)
        if replaced is None or folder is None or not os.path.lexists(folder):
            return
        if not _holds_something(self.target) and not self.target.is_symlink():
            _remove_empty(self.target)
            os.rename(folder, self.target)
            self.restored = True
        elif unfinished:
            works = "keep one of the two under this name and remove the other"
            raise Unwritable(self.target, f"exists again, and its old content is in {folder}", works=works)
        else:
            self._remove(folder, replaced)

    def _remove(self, folder: Path, replaced: ReplacedFolder) -> None:
        """Remove the entries of a replaced folder that are known to be replaceable."""
        if replaced.entries is None and not replaced.keep:
            contents = self._judge(folder)
            if contents.replaceable:
                self._journal.removing(contents.entries)
                replaced = dataclasses.replace(replaced, entries=contents.entries)
        if replaced.entries is None or not remove(folder, replaced.entries):
            self.kept = folder

    def __enter__(self) -> Staging:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        resumes = self.layout is not None
        if not self._published and not resumes:
            self.discard()
        # An exception between the last rename and the end of the removal leaves the rest of it to the next start.
        self._journal.close(remove=self._cleaned)
        if isinstance(error, OSError) and is_full(error):
            raise unwritable(Path(error.filename or self.directory), error, resumes=resumes) from None

    def check_space(self, bytes_needed: int, files_needed: int) -> None:
        """Compare what will be written with the space and inodes of the file system; Unwritable with both numbers."""
        check_space(self.target, bytes_needed, files_needed)

    def laid_out(self, layout: Any) -> None:
        """Record that every file exists in full size, with the positions of the tensors in them (JSON)."""
        self.sync()
        self._journal.laid_out(layout, sizes(self.directory))
        self.layout = layout

    def finish(self, names: Iterable[str], note: Any = None) -> None:
        """Record completely written tensors and a note on them; thread-safe, without a flush."""
        self._journal.finish(names, note)

    def sync(self, paths: Iterable[Path] | None = None) -> None:
        """Flush the files (all by default) to disk and record that finished tensors are durable."""
        position = self._journal.position()
        for path in _files(self.directory) if paths is None else paths:
            _flush(path)
        _flush_directories(self.directory)
        self._journal.synced(position)

    def publish(self, *, durable: bool = True, proven: bool = True) -> Path:
        """Rename the directory to the target's name; then remove the replaced folder, if the result is verified.

        A replaced folder that must not be removed (not verified, or something was added to it) is kept: see `kept`.
        """
        replaces = _holds_something(self.target)
        if durable or replaces:
            self.sync()
        replaced = None
        if replaces:
            # Check again: a conversion takes hours.
            check_target(self.target, overwrite=self._overwrite, judge=self._judge)
            replaced = ReplacedFolder(name=self._free_name().name, keep=not proven)
        self._journal.complete(replaced)
        with _or_unwritable(self.target, "cannot be replaced"):
            self._rename(replaced)
        self._published = True
        _flush(self.target.parent)
        if replaced is not None:
            self._remove(self.target.with_name(replaced.name), replaced)
        self._cleaned = True
        return self.target

    def _rename(self, replaced: ReplacedFolder | None) -> None:
        folder = None if replaced is None else self.target.with_name(replaced.name)
        try:
            if folder is None:
                _remove_empty(self.target)
            else:
                os.rename(self.target, folder)
            os.rename(self.directory, self.target)
        except BaseException:
            if folder is not None and os.path.lexists(folder) and not os.path.lexists(self.target):
                os.rename(folder, self.target)
            raise

    def _free_name(self) -> Path:
        names = (_REPLACED, *(f"{_REPLACED}-{number}" for number in range(2, 1000)))
        return next(path for path in map(self._sibling, names) if not os.path.lexists(path))

    def discard(self) -> None:
        """Remove everything written so far, including the journal."""
        if self.layout is not None:
            # First, so that an interrupted removal is never taken for a conversion that can be continued.
            with contextlib.suppress(Unwritable):
                self._journal.restart(self._digest)
        shutil.rmtree(self.directory, ignore_errors=True)
        self._published = self._cleaned = True


def check_start(target: Path, *, overwrite: bool, judge: Judge = _nothing_known) -> None:
    """Reject a target as `check_target` does, and then remove a journal that describes nothing any more."""
    try:
        check_target(target, overwrite=overwrite, judge=judge)
    except Unwritable:
        path = target.with_name(target.name + _JOURNAL)
        with contextlib.suppress(Unwritable):  # of a conversion that is running, or not a journal of ours
            if path.exists():
                journal = Journal(path)
                journal.close(remove=_is_obsolete(journal, target))
        raise


def _is_obsolete(journal: Journal, target: Path) -> bool:
    """Return whether nothing is left that the journal describes: the process ended just before it removed it."""
    replaced = journal.progress.replaced
    described = [target.with_name(target.name + _PARTIAL)]
    described += [] if replaced is None else [target.with_name(replaced.name)]
    return not any(map(os.path.lexists, described))


def check_target(target: Path, *, overwrite: bool, judge: Judge = _nothing_known) -> None:
    """Reject a target that cannot be written; creates and writes nothing.

    Args:
        target: the resolved path of the folder.
        overwrite: replace it if it holds nothing that `judge` does not recognise.

    Raises:
        Unwritable: it is protected, not a folder, not empty, or not writable; the message names an alternative.
    """
    reason = reason_against(target)
    if reason is not None:
        raise Unwritable(target, f"{reason}, and is not replaced", works=another_target(target))
    if target.exists() and not target.is_dir():
        raise Unwritable(target, "exists and is not a directory", works=another_target(target))
    if _holds_something(target):
        held = judge(target)
        if not held.replaceable:
            problem = (
                f"holds more than {held.kind}" if held.kind else "not empty, and neither a conversion nor a checkpoint"
            )
            raise Unwritable(target, problem, expected="nothing else", found=held.shown, works=another_target(target))
        if not overwrite:
            works = " or ".join(filter(None, (another_target(target), "--overwrite")))
            raise Unwritable(target, "not empty", expected="nothing", found=held.kind, works=works)
    _check_parent(target)


def another_target(target: Path, *, accept: Callable[[Path], bool] = lambda path: True) -> str | None:
    """Return an accepted target near this one, as an option; None if there is none."""
    free = free_path(target, accept=lambda path: _is_free(path) and accept(path))
    return None if free is None else f"--out {shlex.quote(str(free))}"


def _is_free(target: Path) -> bool:
    return not any(os.path.lexists(target.with_name(target.name + ending)) for ending in (_PARTIAL, _JOURNAL))


def _check_parent(target: Path) -> None:
    parent = existing_parent(target)
    if not parent.is_dir():
        raise Unwritable(target, f"{parent} exists and is not a directory", works="another target")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise Unwritable(target, f"{parent} is not writable", works="another target")


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
    """Return the nearest existing folder above a target."""
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
    """Return the bytes and files that the partial directory already uses, without holes."""
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
