"""Journal of finished tensors of a conversion: lines appended to a file that also serves as its lock.

A line counts as done if the machine has not been restarted since it was written, or if a `synced` line follows:
a killed process loses nothing that it wrote, a power failure loses what was not fsynced.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from launcher.convert.containers.errors import Unwritable, unwritable
from launcher.convert.containers.files import write_all
from launcher.records import dataclass

_BOOT = Path("/proc/sys/kernel/random/boot_id")
# First bytes of every journal.
_HEAD = b'{"digest": "'


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacedFolder:
    """The replaced folder, renamed to a sibling of the target.

    Attributes:
        name: its new name.
        keep: the folder must not be removed.
        entries: entries that are being removed from it; None before the removal starts.
    """

    name: str
    keep: bool = False
    entries: tuple[str, ...] | None = None


@dataclass(slots=True, kw_only=True)
class Progress:
    """State recorded in a journal.

    The plan's digest, the layout with the sizes of all files, finished names and their notes, completeness.
    """

    digest: str | None = None
    layout: Any = None
    files: dict[str, int] = field(default_factory=dict)
    finished: set[str] = field(default_factory=set)
    notes: dict[str, Any] = field(default_factory=dict)
    complete: bool = False
    replaced: ReplacedFolder | None = None


class Journal:
    """The journal at `path`, locked for this process from `open` to `close`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._writing = threading.Lock()
        self._descriptor = _lock(path)
        data = self._read()
        if not _is_journal(data):
            os.close(self._descriptor)
            raise Unwritable(path, "exists, and was not left by a conversion")
        self.progress, end = _replay(data)
        os.ftruncate(self._descriptor, end)
        self._end = end

    def _read(self) -> bytes:
        size = os.fstat(self._descriptor).st_size
        return os.pread(self._descriptor, size, 0)

    def restart(self, digest: str) -> None:
        """Discard the state and start another plan; one line, so that a kill never leaves a journal without digest."""
        self.progress = Progress(digest=digest)
        self._append({"digest": digest, "boot": _boot()})

    def resume(self) -> None:
        """Record that another process continues, possibly after a reboot."""
        self._append({"boot": _boot(), "kept": sorted(self.progress.finished)})

    def laid_out(self, layout: Any, files: Mapping[str, int]) -> None:
        """Record that all files exist, with their sizes; fsync."""
        self.progress.layout = layout
        self._append({"layout": layout, "files": dict(files)})
        os.fsync(self._descriptor)

    def finish(self, names: Iterable[str], note: Any = None) -> None:
        """Record finished names and a note on them (JSON); no fsync."""
        finished = list(names)
        self._append({"done": finished} if note is None else {"done": finished, "note": note})

    def position(self) -> int:
        """Return the current end of the journal: entries before it are finished."""
        with self._writing:
            return self._end

    def synced(self, position: int) -> None:
        """Record that the data of all entries before `position` is on disk; fsync."""
        self._append({"synced": position})
        os.fsync(self._descriptor)

    def complete(self, replaced: ReplacedFolder | None) -> None:
        """Record that only the rename is left, and the new name of the replaced folder; fsync."""
        self._append(
            {"complete": True, "aside": None if replaced is None else {"name": replaced.name, "keep": replaced.keep}}
        )
        os.fsync(self._descriptor)

    def removing(self, entries: Iterable[str]) -> None:
        """Record which entries of the replaced folder are about to be removed; fsync."""
        self._append({"removing": list(entries)})
        os.fsync(self._descriptor)

    def _append(self, entry: dict[str, Any]) -> None:
        line = json.dumps(entry).encode() + b"\n"
        with self._writing:
            try:
                write_all(self._descriptor, line, self._end)
            except OSError as error:
                raise unwritable(self.path, error) from None
            self._end += len(line)

    def close(self, *, remove: bool = False) -> None:
        """Release the lock; with `remove`, also delete the journal."""
        if remove:
            self.path.unlink(missing_ok=True)
        os.close(self._descriptor)


def _lock(path: Path) -> int:
    """Open and lock the journal; Unwritable if another process holds it."""
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        except OSError as error:
            raise Unwritable(path, f"cannot be created: {error.strerror}") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise Unwritable(path, "another conversion is writing this target", works="wait for it to end") from None
        # The previous holder may have removed the file between open and lock.
        try:
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                return descriptor
        except FileNotFoundError:
            pass
        os.close(descriptor)


def _boot() -> str:
    """Return the boot ID of this machine; without one, a name that is unique to this process."""
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return f"unknown {os.getpid()}"


def _is_journal(data: bytes) -> bool:
    """Return whether a file begins like a journal; the first line may be truncated."""
    return data[: len(_HEAD)] == _HEAD[: len(data)]


def _replaced(entry: Any, before: ReplacedFolder | None) -> ReplacedFolder | None:
    """Return a line's record of the replaced folder; None if its name is not a plain file name."""
    if "aside" in entry:
        stored = entry["aside"]
        name = stored.get("name") if isinstance(stored, dict) else None
        if not isinstance(name, str) or name != os.path.basename(name) or name in ("", ".", ".."):
            return None
        return ReplacedFolder(name=name, keep=bool(stored.get("keep")))
    if "removing" in entry and before is not None:
        return replace(before, entries=tuple(filter(_is_inside, entry["removing"])))
    return before


def _is_inside(name: Any) -> bool:
    return isinstance(name, str) and not name.startswith("/") and ".." not in name.split("/")


def _replay(data: bytes) -> tuple[Progress, int]:
    """Read the complete lines of a journal; return the recorded state and the end offset."""
    progress, pending, boot, end = Progress(), list[tuple[int, set[str]]](), "", 0
    for line in data.splitlines(keepends=True):
        try:
            entry = json.loads(line) if line.endswith(b"\n") else None
        except ValueError:
            entry = None
        if not isinstance(entry, dict):
            break
        if "digest" in entry:
            progress, pending = Progress(digest=entry["digest"]), []
        if "kept" in entry:
            pending = [(end, set(entry["kept"]))]
        boot = entry.get("boot", boot)
        progress.layout = entry.get("layout", progress.layout)
        progress.files = entry.get("files", progress.files)
        pending.append((end, set(entry.get("done", ()))))
        if "note" in entry:
            progress.notes.update(dict.fromkeys(entry.get("done", ()), entry["note"]))
        safe = entry.get("synced", 0)
        progress.finished.update(*(names for at, names in pending if at < safe))
        progress.complete = progress.complete or bool(entry.get("complete"))
        progress.replaced = _replaced(entry, progress.replaced)
        pending = [(at, names) for at, names in pending if at >= safe and names]
        end += len(line)
    if boot == _boot():
        progress.finished.update(*(names for _, names in pending))
    return progress, end
