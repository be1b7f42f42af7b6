"""Replaces the rendezvous port by a free one of this machine, and reserves it, so that two jobs do not share a port."""

import contextlib
import fcntl
import os
import re
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from launcher.executors import private
from launcher.plan import LaunchPlan, NodePlan
from launcher.syntax import is_count

_OPTION = re.compile(r"--?master[_-]port")
_VARIABLE = "MASTER_PORT"
# `shell/common.sh` reserves ports in the same way, in this folder with the number of the user appended.
RESERVED = "/tmp/launch-ports-"
# A run binds its port within so many seconds, and has a process that its mark identifies within so many.
BOUND_SECONDS, STARTED_SECONDS = 300, 30
_TRIES = 100
# What the log of a run shows whose port was taken between choosing and binding it (an extended regular expression), and
# how often such a run starts once more with another port.
BIND_ERROR, MOST_BINDS = "EADDRINUSE|[Aa]ddress already in use", 3


def on_free_port(node: NodePlan, mark: str) -> NodePlan:
    """Return the node with a free port in place of its rendezvous port; no other number is changed.

    Also where that port is free still: a run with the same name may have been started a second ago, and not listen yet.

    Args:
        mark: identifies the run, for which the port is reserved.
    """
    taken = port_of(node)
    if taken is None or not is_count(taken):
        return node
    places = [place for index in range(len(node.argv)) if (place := _place(index, node.argv))]
    free = next((port for _ in range(_TRIES) if reserve(int(port := _free_port()), mark)), taken)
    argv = list(node.argv)
    for index, port in places:
        if port == taken:
            argv[index] = argv[index].removesuffix(taken) + free
    env = {key: free if key == _VARIABLE and value == taken else value for key, value in node.env.items()}
    return replace(node, argv=tuple(argv), env=env)


def port_of(node: NodePlan) -> str | None:
    """Return the rendezvous port of a node, as it is written; None if it has none."""
    places = [place for index in range(len(node.argv)) if (place := _place(index, node.argv))]
    return places[0][1] if places else node.env.get(_VARIABLE)


def reserve(port: int, mark: str) -> bool:
    """Reserve a port of this machine for the run with this mark; False if another run of this user is to use it.

    A reservation ends when it is released, when its run has no process any more, and at the latest after the time in
    which a run binds its port. Where nothing can be reserved every port is free.
    """
    with _reservations() as folder:
        if folder is None:
            return True
        file = folder / str(port)
        holder = _holder(file)
        if holder and holder != mark and _holds(file, holder):
            return False
        with contextlib.suppress(OSError):  # a full disk
            file.write_text(f"{mark}\n", encoding="utf-8")
        return True


def release(port: int, mark: str) -> None:
    """Give up the reservation of a port, if it is this run's."""
    with _reservations() as folder:
        if folder is not None and _holder(folder / str(port)) == mark:
            with contextlib.suppress(OSError):  # it expires by itself
                (folder / str(port)).unlink(missing_ok=True)


@contextlib.contextmanager
def _reservations() -> Iterator[Path | None]:
    """Lock the folder with the reserved ports; None if there is none that is only this user's."""
    folder = Path(f"{RESERVED}{os.getuid()}")
    try:
        private.make_folder(folder)
        if folder.is_symlink() or not private.is_own(folder):
            raise PermissionError
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        yield None
        return
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder
    finally:
        os.close(lock)


def _holder(file: Path) -> str:
    try:
        return private.read(file).strip()
    except OSError:
        return ""


def _holds(file: Path, holder: str) -> bool:
    try:
        age = time.time() - file.stat().st_mtime
    except OSError:  # released just now
        return False
    return age < STARTED_SECONDS or (age < BOUND_SECONDS and _runs_here(holder))


def _runs_here(mark: str) -> bool:
    """Return whether a process of the run is on this machine."""
    sign = f"LAUNCH_RUN={mark}/".encode()
    for entry in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # of another user, or ended
            if sign in entry.read_bytes():
                return True
    return False


def with_port_reference(plan: LaunchPlan) -> LaunchPlan:
    """Return the plan with `${MASTER_PORT}` as its rendezvous port, unless the user chose the port."""
    if plan.start.port is not None:
        return plan
    return replace(plan, nodes=tuple(with_port(node, f"${{{_VARIABLE}}}") for node in plan.nodes))


def with_port(node: NodePlan, port: str) -> NodePlan:
    """Return the node with another rendezvous port, in its options and in its MASTER_PORT variable."""
    argv = list(node.argv)
    places = [place for index in range(len(argv)) if (place := _place(index, node.argv))]
    for index, old in places:
        argv[index] = argv[index].removesuffix(old) + port
    # Without a port option the variable sets the port.
    env = {key: port if key == _VARIABLE else value for key, value in node.env.items()}
    return replace(node, argv=tuple(argv), env=env)


def _place(index: int, argv: tuple[str, ...]) -> tuple[int, str] | None:
    """Return the index of the word with the port, and the port, if the word at `index` is the port option."""
    option, equals, value = argv[index].partition("=")
    if not _OPTION.fullmatch(option):
        return None
    if equals:
        return index, value
    return (index + 1, argv[index + 1]) if index + 1 < len(argv) else None


def is_free(port: int) -> bool:
    """Return whether no process listens on a port here."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except (OSError, OverflowError):
            return False
    return True


def _free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])
