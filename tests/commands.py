"""The command line in child processes at the price of a fork: one process imports it, every command is its child."""

import fcntl
import importlib
import json
import os
import pty
import signal
import socket
import struct
import subprocess
import sys
import termios
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from tests.waiting import STUCK_SECONDS

ROOT = Path(__file__).resolve().parent.parent


class Finished:
    """A finished command: exit code, standard output, standard error."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    def __repr__(self) -> str:
        return f"exit code {self.code}\n--- out\n{self.out}\n--- err\n{self.err}"


def run_process(args: Sequence[str], *, cwd: Path, env: Mapping[str, str], timeout: float = 240) -> Finished:
    """Run `launch WORDS` in a process of its own, as a shell starts it."""
    command = [sys.executable, "-m", "launcher", *args]
    done = subprocess.run(command, cwd=cwd, env=dict(env), capture_output=True, text=True, timeout=timeout, check=False)
    return Finished(done.returncode, done.stdout, done.stderr)


def in_terminal(columns: int, *words: str, cwd: Path = ROOT) -> str:
    """Return what `launch` shows in a terminal of so many columns; it must succeed."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    env["PYTHONPATH"] = str(ROOT)
    command = [sys.executable, "-m", "launcher", *words]
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, cwd=cwd, env=env)
    os.close(slave)
    shown = b""
    try:
        while chunk := os.read(master, 65536):
            shown += chunk
    except OSError:
        pass
    os.close(master)
    assert process.wait(timeout=STUCK_SECONDS) == 0, shown
    return shown.decode()


class CommandServer:
    """A process that has imported every verb (and run none) and forks one child a command."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.count = folder, 0
        self.process = subprocess.Popen(
            [sys.executable, "-c", "from tests.commands import serve; serve()"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.process.stdin.close()  # type: ignore[union-attr]
        self.process.wait(timeout=STUCK_SECONDS)
        self.process.stdout.close()  # type: ignore[union-attr]

    def run(self, args: Sequence[str], *, cwd: Path, env: Mapping[str, str], timeout: float = 240) -> Finished:
        """Run `launch WORDS` with this environment and nothing of the tests' own."""
        self.count += 1
        out, err = self.folder / f"{self.count}.out", self.folder / f"{self.count}.err"
        request = {
            "words": list(args),
            "cwd": str(cwd),
            "env": dict(env),
            "out": str(out),
            "err": str(err),
            "timeout": round(timeout),
        }
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        code = int(self.process.stdout.readline())
        finished = Finished(code, out.read_text(encoding="utf-8"), err.read_text(encoding="utf-8"))
        out.unlink()
        err.unlink()
        return finished


class SocketServer:
    """The same for a shell: `command_client.py SOCKET WORDS` has the shell's own folder, environment and streams."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "launch.socket"
        code = "import sys; from tests.commands import serve_socket; serve_socket(sys.argv[1])"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, str(self.path)], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
        )
        assert self.process.stdout is not None
        self.process.stdout.readline()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.process.terminate()
        self.process.communicate(timeout=STUCK_SECONDS)


def _import_verbs() -> None:
    from launcher.cli.dispatch import VERBS

    for name in ("hydra", "rich.console", *(verb.module for verb in VERBS.values())):
        importlib.import_module(name)


def serve_socket(path: str) -> None:
    """Answer requests on a socket, each in a process of its own, until terminated."""
    _import_verbs()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()
        print("ready", flush=True)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        while True:
            connection, _ = listening.accept()
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                listening.close()
                _answer(connection)
                os._exit(0)
            connection.close()


def _answer(connection: socket.socket) -> None:
    size, descriptors, _, _ = socket.recv_fds(connection, 4, 3)
    text = b""
    while len(text) < int.from_bytes(size, "big"):
        text += connection.recv(1 << 20)
    child = os.fork()
    if child == 0:
        connection.close()
        for number, opened in enumerate(descriptors):
            os.dup2(opened, number)
            os.close(opened)
        # Python keeps whether a stream can seek, and the server's own were others.
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        _run(json.loads(text))
    connection.sendall(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])).encode())


def serve() -> None:
    """Answer requests on standard input until it closes."""
    _import_verbs()
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            _run(request)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _run(request: Mapping[str, Any]) -> None:
    code = 1
    try:
        # A guard against hanging: the default action of SIGALRM ends the process.
        signal.alarm(request["timeout"])
        files = ((0, os.devnull), (1, request["out"]), (2, request["err"])) if "out" in request else ()
        for number, file in files:
            opened = os.open(file, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.dup2(opened, number)
            os.close(opened)
        os.environ.clear()
        os.environ.update(request["env"])
        os.chdir(request["cwd"])
        sys.argv = ["launch", *request["words"]]
        sys.path[0] = ""
        from launcher.cli import main

        code = main()
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)
