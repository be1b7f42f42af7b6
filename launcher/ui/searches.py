"""Searches of sessions: a process each, one at a time, others wait; progress, cancel, limits."""

import os
import secrets
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from launcher.ui.worker import begin, ended_by

# Seconds of one search; without a question for so long its page is closed, and it ends.
LONGEST_S, ABANDONED_S = 600.0, 30.0
_MOST_WAITING, _MOST_KEPT, _REPORT_S, _TICK_S = 8, 32, 0.5, 0.5


class Full(Exception):
    """Too many searches wait."""


@dataclass(slots=True)
class Running:
    """One search.

    Attributes:
        state: waiting, running, done, cancelled or failed.
        progress: layouts done and all of them, and the result so far as `launch search --json`.
        why: why it failed.
    """

    words: Sequence[str]
    state: str = "waiting"
    progress: dict[str, Any] = field(default_factory=dict)
    why: str = ""
    process: Any = None
    reports: Connection | None = None
    begun: float = 0.0
    asked: float = field(default_factory=time.monotonic)


class Searches:
    """All searches of a server.

    Args:
        context: multiprocessing context whose processes are forked from one that has all modules.
        folders: folders that a search may read besides the program's.
    """

    def __init__(self, context: Any, folders: Sequence[str] = ()) -> None:
        self._context, self._folders = context, tuple(folders)
        self._all: dict[str, Running] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()
        threading.Thread(target=self._tick, daemon=True, name="searches").start()

    def start(self, words: Sequence[str]) -> str:
        """Start a search, or let it wait, and return its id.

        Raises:
            Full: too many wait already.
        """
        with self._lock:
            if sum(each.state == "waiting" for each in self._all.values()) >= _MOST_WAITING:
                raise Full
            name = secrets.token_urlsafe(12)
            self._all[name] = Running(words=tuple(words))
            self._advance()
            return name

    def state(self, name: str) -> tuple[Running | None, int]:
        """Return a search, None: forgotten; and how many wait before it."""
        with self._lock:
            self._advance()
            found = self._all.get(name)
            if found is not None:
                found.asked = time.monotonic()
            before = [key for key, each in self._all.items() if each.state in ("waiting", "running")]
            return found, before.index(name) if name in before else 0

    def cancel(self, name: str) -> None:
        """End a search; what it found so far stays."""
        with self._lock:
            found = self._all.get(name)
            if found is not None and found.state in ("waiting", "running"):
                self._drain(found)
                self._end(found, "cancelled")
            self._advance()

    def close(self) -> None:
        """End all searches."""
        self._closed.set()
        with self._lock:
            for found in self._all.values():
                self._end(found, "cancelled")

    def _tick(self) -> None:
        while not self._closed.wait(_TICK_S):
            with self._lock:
                self._advance()

    def _advance(self) -> None:
        now = time.monotonic()
        for found in self._all.values():
            if found.state == "running":
                self._drain(found)
            if found.state == "running" and not found.process.is_alive():
                self._end(found, "failed", found.why or ended_by(found.process.exitcode))
            if found.state == "running" and now - found.begun > LONGEST_S:
                self._end(found, "cancelled", f"stopped after {LONGEST_S:g} s; launch search goes on longer")
            if found.state in ("running", "waiting") and now - found.asked > ABANDONED_S:
                self._end(found, "cancelled")
        if not any(each.state == "running" for each in self._all.values()):
            waiting = next((each for each in self._all.values() if each.state == "waiting"), None)
            if waiting is not None:
                self._begin(waiting)
        ended = [key for key, each in self._all.items() if each.state not in ("running", "waiting")]
        for key in ended[: max(0, len(ended) - _MOST_KEPT)]:
            del self._all[key]

    def _begin(self, found: Running) -> None:
        reports, sender = self._context.Pipe(duplex=False)
        found.process = self._context.Process(
            target=_search, args=(sender, self._folders, found.words), daemon=True, name="search"
        )
        found.process.start()
        sender.close()
        found.reports, found.state, found.begun = reports, "running", time.monotonic()

    def _drain(self, found: Running) -> None:
        try:
            while found.reports is not None and found.reports.poll():
                kind, content = found.reports.recv()
                if kind == "progress":
                    found.progress = content
                elif kind == "failed":
                    self._end(found, "failed", content)
                else:
                    found.progress = content
                    self._end(found, "done")
        except (EOFError, OSError):
            return  # the process has died: `_advance` notices that and says so

    def _end(self, found: Running, state: str, why: str = "") -> None:
        if found.state not in ("running", "waiting"):
            return
        found.state, found.why = state, why
        if found.process is not None:
            found.process.kill()
            found.process.join(5)
            found.process.close()
            found.process = None
        if found.reports is not None:
            found.reports.close()
            found.reports = None


def _search(sender: Connection, folders: Sequence[str], words: Sequence[str]) -> None:
    """Search in this process and report progress."""
    begin(folders)
    os.nice(10)  # a search runs for minutes: answers to what is typed come first
    try:
        sender.send(("done", _searched(sender, words)))
    except BrokenPipeError:
        return  # the search was cancelled, or the server has ended
    except Exception as error:
        from launcher.ui.worker import sentence

        sender.send(("failed", sentence(error)))


def _searched(sender: Connection, words: Sequence[str]) -> dict[str, Any]:
    from launcher.compose import compose
    from launcher.search.begin import begin as prepared
    from launcher.search.output import as_tree

    job = compose(words, here=False)
    running, last = prepared(job), 0.0
    total = len(running.layouts)
    for done in running.run():
        if time.monotonic() - last > _REPORT_S:
            last = time.monotonic()
            sender.send(("progress", {"done": done, "total": total, **as_tree(job, running.found)}))
    return {"done": total, "total": total, **as_tree(job, running.found)}
