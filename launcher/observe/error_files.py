"""Reads torch elastic's error files: the exception of a rank whose entry point has `@record`, or of the agent itself.

Source: torch.distributed.elastic.multiprocessing.errors.error_handler (content), .api (one file for each rank, below
the folder of the agent's logs).
"""

import json
from collections.abc import Iterator
from pathlib import Path

from launcher.executors import private
from launcher.executors.error_files import AGENT_FILE, RANKS
from launcher.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorFile:
    """One error file.

    Attributes:
        rank: global rank; None: the agent's.
        at: when it was raised, in seconds since 1970.
        text: type and message of the exception.
        stack: its traceback, with earlier exceptions of the chain.
    """

    path: Path
    rank: int | None
    at: int
    text: str
    stack: str


def error_files(folder: Path, node: int, attempt: int, first: int, since: float) -> list[ErrorFile]:
    """Return the error files of a node's last attempt, the earliest first.

    Args:
        first: global rank of the node's first rank.
        since: end of the attempt before, in seconds since 1970; 0: there was none.
    """
    logs = folder / "logs" / RANKS / f"node{node}"
    paths = [path for path in logs.glob("*/attempt_*/*/error.json") if _time(path) > since]
    last = max((_time(path.parent.parent) for path in paths), default=0.0)
    found = [
        each
        for path in paths
        if _time(path.parent.parent) == last and path.parent.name.isdecimal()
        for each in _read(path, first + int(path.parent.name))
    ]
    found.sort(key=lambda each: each.at)
    return found or list(_read(logs / AGENT_FILE.format(attempt=attempt), None))


def _time(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _read(path: Path, rank: int | None) -> Iterator[ErrorFile]:
    try:
        message = json.loads(private.read(path))["message"]
        if isinstance(message, str):  # an entry point's own handler
            yield ErrorFile(path=path, rank=rank, at=0, text=message, stack="")
            return
        extra = message.get("extraInfo", {})
        at = int(extra.get("timestamp", 0))
        stack = str(extra.get("py_callstack", ""))
        yield ErrorFile(path=path, rank=rank, at=at, text=str(message["message"]), stack=stack)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return
