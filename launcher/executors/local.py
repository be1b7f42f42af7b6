"""Runs a one-node plan on this machine: own process group, free port, log file, clean stop."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from launcher.executors.failure import CannotStart
from launcher.executors.files import claim, resolved, write
from launcher.executors.processes import descendants, kill_all
from launcher.plan import LaunchPlan, NodePlan
from launcher.plan.shell import LAUNCH_DIR, OPTIONAL, references

# After the first Ctrl-C ranks finish their step and save; a rank that does not end by then is killed.
_GRACE_SECONDS = 60.0
_LOOK_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a run ended: exit code of the processes (128 + signal if interrupted) and where its log is."""

    code: int
    log: Path
    interrupted: bool = False


def run(plan: LaunchPlan, *, quiet: bool = False) -> Ended:
    """Write the plan's files, start node 0's command here, log its output, show it unless `quiet`, and wait for it.

    Ctrl-C once asks the processes to stop cleanly, twice kills them; either way none is left.

    Raises:
        CannotStart: the plan needs several nodes, a reference is not set, the output folder is not empty, …
    """
    if len(plan.nodes) != 1:
        raise CannotStart(
            f"this job has {len(plan.nodes)} nodes, and this is one machine: "
            "launch dry-run --format shell writes the script to run on each of them"
        )
    environ = {**dict.fromkeys(OPTIONAL, ""), **os.environ, LAUNCH_DIR: os.getcwd()}
    missing = [name for name in references(plan) if name not in environ]
    if missing:
        raise CannotStart(f"{', '.join(missing)} not set in the environment: the plan refers to it")
    folder = Path(plan.output_dir)
    claim(folder)
    write(plan, environ)
    log = folder / "logs" / "node0.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    for node in plan.prepare:
        ended = _start(node, environ, log, quiet)
        if ended.code:
            return ended
    return _start(_on_free_port(plan.nodes[0]), environ, log, quiet)


def _on_free_port(node: NodePlan) -> NodePlan:
    """Return the node with a free port in place of a rendezvous port that is taken."""
    argv = list(node.argv)
    env = dict(node.env)
    ports = [argv[i + 1] for i, word in enumerate(argv[:-1]) if word.lstrip("-").replace("-", "_") == "master_port"]
    taken = ports[0] if ports else env.get("MASTER_PORT")
    if taken is None or _is_free(int(taken)):
        return node
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = str(probe.getsockname()[1])
    argv = [free if word == taken else word for word in argv]
    env = {key: free if key == "MASTER_PORT" else value for key, value in env.items()}
    return replace(node, argv=tuple(argv), env=env)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _start(node: NodePlan, environ: Mapping[str, str], log: Path, quiet: bool) -> Ended:
    env = {**environ, **{key: resolved(value, environ) for key, value in node.env.items()}}
    # The interpreter's own scripts (torchrun) must be found even where its environment is not activated.
    env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), env.get("PATH", os.defpath)])
    argv = [resolved(word, environ) for word in node.argv]
    try:
        process = subprocess.Popen(
            argv,
            env=env,
            cwd=resolved(node.workdir, environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        raise CannotStart(f"{argv[0]} cannot be started: {error.strerror or error}") from None
    shower = threading.Thread(target=_show, args=(process, log, quiet), daemon=True)
    shower.start()
    ended = _wait(process, log)
    shower.join(timeout=5)
    return ended


def _show(process: "subprocess.Popen[bytes]", log: Path, quiet: bool) -> None:
    assert process.stdout is not None
    with log.open("ab") as file:
        while chunk := process.stdout.read1(65536):  # type: ignore[attr-defined]
            file.write(chunk)
            file.flush()
            if quiet:
                continue
            try:
                sys.stdout.buffer.write(chunk)
                sys.stdout.buffer.flush()
            except (BrokenPipeError, ValueError):
                continue


def _wait(process: "subprocess.Popen[bytes]", log: Path) -> Ended:
    received: list[int] = []
    deadline = 0.0

    def forward(number: int, _frame: object) -> None:
        nonlocal deadline
        received.append(number)
        deadline = time.monotonic() + _GRACE_SECONDS
        if len(received) > 1:
            _kill(process)
        else:
            _signal_group(process, number)

    below: list[int] = []
    before = {number: signal.signal(number, forward) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        while True:
            try:
                code = process.wait(timeout=_LOOK_SECONDS)
                break
            except subprocess.TimeoutExpired:
                below = descendants(process.pid)
                if received and time.monotonic() > deadline:
                    _kill(process)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        # Ranks have sessions of their own (torchrun): what was below us at the last look must not outlive us.
        kill_all(below)
    if received:
        return Ended(code=128 + received[0], log=log, interrupted=True)
    return Ended(code=code if code >= 0 else 128 - code, log=log)


def _kill(process: "subprocess.Popen[bytes]") -> None:
    kill_all([*descendants(process.pid), process.pid])


def _signal_group(process: "subprocess.Popen[bytes]", number: int) -> None:
    """Signal every process of the group that we started, and no other."""
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):
        return
