"""The command line in child processes at the price of a fork: one process imports it, every command is its child."""

import importlib
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

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
        self.process.wait(30)
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


def serve() -> None:
    """Answer requests on standard input until it closes."""
    from launcher.cli.dispatch import VERBS

    for name in ("hydra", "rich.console", *(verb.module for verb in VERBS.values())):
        importlib.import_module(name)
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
        for number, file in ((0, os.devnull), (1, request["out"]), (2, request["err"])):
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
