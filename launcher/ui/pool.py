"""The processes that compute answers: a bounded number, with time limits; answers of equal requests are kept."""

import multiprocessing
import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

from pebble import ProcessExpired, ProcessPool

from launcher.ui.worker import begin, call, ended_by

# Seconds for one answer; a live estimate takes 0.1, a port of a long script to another backend 3.
ANSWER_S = 20.0
# Answers waited for at once, running ones included: beyond it a request is refused instead of piling up.
_MOST_WAITING = 64
# Answers kept: one of a large job has about 60 KB.
_KEPT = 256
# Calls of one process, after which a new one is forked: whatever a call leaves behind ends with it.
_CALLS = 2000


class Busy(Exception):
    """Too many requests wait already."""


class Stopped(Exception):
    """A call took too long or its process is gone; or it failed, with the reason."""


def workers_here() -> int:
    """Return how many processes compute answers: one a core, four at most."""
    return max(1, min(4, len(os.sched_getaffinity(0))))


class Pool:
    """Computes answers in processes.

    Args:
        folders: folders that the processes may read besides the program's.
        workers: number of processes; None: one a core.
    """

    def __init__(self, folders: Sequence[str] = (), workers: int | None = None) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["launcher.ui.preload"])
        self.context = context
        self._pool = ProcessPool(
            max_workers=workers or workers_here(),
            max_tasks=_CALLS,
            initializer=begin,
            initargs=(tuple(folders),),
            context=context,
        )
        self._kept: OrderedDict[tuple[Any, ...], Any] = OrderedDict()
        self._lock = threading.Lock()
        self._waiting = 0

    def start(self) -> None:
        """Start the processes, so that the first request does not wait for them."""
        self._pool.schedule(call, args=["answers.plan", []])

    def answer(self, name: str, *args: Any, seconds: float = ANSWER_S) -> Any:
        """Return what a function of this package returns for plain arguments, from memory where it was asked before.

        Raises:
            Busy: too many requests wait.
            Stopped: it took too long, its process is gone, or it failed.
        """
        key = (name, *(tuple(arg) if isinstance(arg, list) else arg for arg in args))
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        result = self.compute(name, *args, seconds=seconds)
        with self._lock:
            self._kept[key] = result
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return result

    def compute(self, name: str, *args: Any, seconds: float = ANSWER_S) -> Any:
        """Return what a function of this package returns; raises as `answer`, and keeps nothing."""
        with self._lock:
            if self._waiting >= _MOST_WAITING:
                raise Busy
            self._waiting += 1
        try:
            return self._computed(name, args, seconds)
        finally:
            with self._lock:
                self._waiting -= 1

    def _computed(self, name: str, args: tuple[Any, ...], seconds: float) -> Any:
        future = self._pool.schedule(call, args=[name, *args], timeout=seconds)
        try:
            kind, result = future.result(timeout=3 * seconds)
        except FutureTimeoutError:
            future.cancel()
            raise Stopped(f"it took more than {seconds:g} s") from None
        except ProcessExpired as error:
            raise Stopped(ended_by(error.exitcode)) from None
        except CancelledError:
            raise Stopped("it was cancelled") from None
        if kind == "error":
            raise Stopped(result)
        return result

    def close(self) -> None:
        """End all processes."""
        self._pool.stop()
        self._pool.join()
