"""A journal of what a conversion has finished: lines appended to a file that is also its lock.

A line counts as done where the machine has not been restarted since it was written, or where a `synced` line follows:
a killed process loses nothing that it wrote, a machine without power loses what no fsync preceded.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from launcher.convert.containers.errors import Unwritable
from launcher.convert.containers.files import write_all

_BOOT = Path("/proc/sys/kernel/random/boot_id")
# What every journal begins with.
_HEAD = b'{"digest": "'


@dataclass(frozen=True, slots=True, kw_only=True)
class Aside:
    """The folder that the target replaces, moved to a name beside it.

    Attributes:
        name: that name.
        keep: it is not to be removed.
        entries: what is being removed of it; None: nothing yet.
    """

    name: str
    keep: bool = False
    entries: tuple[str, ...] | None = None


@dataclass(slots=True)
class Progress:
    """What a journal tells: the plan's digest, the layout, the names that are finished, notes on them, completeness."""

    digest: str | None = None
    layout: Any = None
    finished: set[str] = field(default_factory=set)
    notes: dict[str, Any] = field(default_factory=dict)
    complete: bool = False
    aside: Aside | None = None


class Journal:
    """The journal at `path`, locked for this process from `open` to `close`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._writing = threading.Lock()
        self._descriptor = _lock(path)
        data = self._read()
        if not _is_journal(data):
            os.close(self._descriptor)
            raise Unwritable(path, "is in the way, and no conversion of this program left it")
        self.progress, end = _replay(data)
        os.ftruncate(self._descriptor, end)
        self._end = end

    def _read(self) -> bytes:
        size = os.fstat(self._descriptor).st_size
        return os.pread(self._descriptor, size, 0)

    def restart(self, digest: str) -> None:
        """Forget everything and begin with another plan: in one line, so that no kill leaves a journal of nobody."""
        self.progress = Progress(digest=digest)
        self._append({"digest": digest, "boot": _boot()})

    def resume(self) -> None:
        """Note that another process goes on, perhaps after a restart of the machine."""
        self._append({"boot": _boot(), "kept": sorted(self.progress.finished)})

    def laid_out(self, layout: Any) -> None:
        """Note that all files exist; fsync."""
        self.progress.layout = layout
        self._append({"layout": layout})
        os.fsync(self._descriptor)

    def finish(self, names: Iterable[str], note: Any = None) -> None:
        """Note finished names, and what there is to tell of them (JSON); no fsync."""
        finished = list(names)
        self._append({"done": finished} if note is None else {"done": finished, "note": note})

    def position(self) -> int:
        """Return where the journal ends now: what stands before it was finished before this moment."""
        with self._writing:
            return self._end

    def synced(self, position: int) -> None:
        """Note that everything that stands before `position` is on the disk; fsync."""
        self._append({"synced": position})
        os.fsync(self._descriptor)

    def complete(self, aside: Aside | None) -> None:
        """Note that only the renaming is left, and under which name the old folder will be; fsync."""
        self._append({"complete": True, "aside": None if aside is None else {"name": aside.name, "keep": aside.keep}})
        os.fsync(self._descriptor)

    def removing(self, entries: Iterable[str]) -> None:
        """Note what is about to be removed of the old folder; fsync."""
        self._append({"removing": list(entries)})
        os.fsync(self._descriptor)

    def _append(self, entry: dict[str, Any]) -> None:
        line = json.dumps(entry).encode() + b"\n"
        with self._writing:
            try:
                write_all(self._descriptor, line, self._end)
            except OSError as error:
                raise Unwritable(self.path, f"cannot be written: {error.strerror}") from None
            self._end += len(line)

    def close(self, *, remove: bool = False) -> None:
        """Give the lock back, and remove the journal where nothing is left to continue."""
        if remove:
            self.path.unlink(missing_ok=True)
        os.close(self._descriptor)


def _lock(path: Path) -> int:
    """Open and lock the journal; Unwritable where another process holds it."""
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
        # The holder before may have removed the file between our opening and our locking it.
        try:
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                return descriptor
        except FileNotFoundError:
            pass
        os.close(descriptor)


def _boot() -> str:
    """Identify this start of this machine; a machine that does not say is never the same one twice."""
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return f"unknown {os.getpid()}"


def _is_journal(data: bytes) -> bool:
    """Tell whether a file begins as journals do; the first line may have been cut off."""
    return data[: len(_HEAD)] == _HEAD[: len(data)]


def _aside(entry: Any, before: Aside | None) -> Aside | None:
    """Return what a line says of the old folder; None where it is no name beside the target."""
    if "aside" in entry:
        told = entry["aside"]
        name = told.get("name") if isinstance(told, dict) else None
        if not isinstance(name, str) or name != os.path.basename(name) or name in ("", ".", ".."):
            return None
        return Aside(name=name, keep=bool(told.get("keep")))
    if "removing" in entry and before is not None:
        return replace(before, entries=tuple(filter(_is_inside, entry["removing"])))
    return before


def _is_inside(name: Any) -> bool:
    return isinstance(name, str) and not name.startswith("/") and ".." not in name.split("/")


def _replay(data: bytes) -> tuple[Progress, int]:
    """Read the whole lines of a journal; returns what they tell and where they end."""
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
        pending.append((end, set(entry.get("done", ()))))
        if "note" in entry:
            progress.notes.update(dict.fromkeys(entry.get("done", ()), entry["note"]))
        safe = entry.get("synced", 0)
        progress.finished.update(*(names for at, names in pending if at < safe))
        progress.complete = progress.complete or bool(entry.get("complete"))
        progress.aside = _aside(entry, progress.aside)
        pending = [(at, names) for at, names in pending if at >= safe and names]
        end += len(line)
    if boot == _boot():
        progress.finished.update(*(names for _, names in pending))
    return progress, end
