"""Where a case happens: a folder to launch from, a job that runs the stub trainer, and a view of all its processes."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

from launcher.plan.executor import ENDED
from tests.commands import ROOT, CommandServer, Finished
from tools.bench.faults.case import Case, Result, judged

TRAINER = Path(__file__).with_name("trainer.py")
# An end that is written late, by what watches a program that was killed.
_LATE_SECONDS = 10
_RUN_ID = re.compile(r"^run: (\S+)$", re.MULTILINE)


class NotReached(Exception):
    """Something that must happen did not, in its time."""


def wait_until(true: Callable[[], object], seconds: float, what: str) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            raise NotReached(what)
        time.sleep(0.5)


def text_of(path: Path) -> str:
    """Return a file's text; "" if it cannot be read."""
    try:
        return path.read_bytes().decode(errors="replace")
    except OSError:
        return ""


class Stage:
    """A run of one case. Executors differ in their overrides and in where their parts are."""

    # Part of the command line of each part's process, and whether it is that of the node with the fault.
    PARTS: ClassVar[dict[str, tuple[str, bool]]] = {
        "rank": ("bin/megatron rank", True),
        "command": ("bin/megatron", True),
    }

    def __init__(self, folder: Path, server: CommandServer, case: Case) -> None:
        self.folder, self.server, self.case = folder, server, case
        self.process: subprocess.Popen[bytes] | None = None
        self.id = ""
        self.undo: list[Callable[[], object]] = []
        self.problems: list[str] = []
        folder.mkdir(parents=True)
        # Files by which ranks are told something; not on a disk that a case fills.
        self.home = folder
        (folder / "x.jsonl").write_text('{"messages": []}\n' * 200)
        program = folder / "env" / "bin" / "megatron"
        program.parent.mkdir(parents=True)
        program.write_text(f"#!{sys.executable} -IS\n" + TRAINER.read_text())
        program.chmod(0o755)

    # -- the job

    @property
    def nodes(self) -> int:
        """Number of machines."""
        return self.case.nodes

    @property
    def environ(self) -> dict[str, str]:
        """The user's environment."""
        own = {"PYTHONPATH": str(ROOT), "LAUNCH_HOME": f"{self.folder}/state", "OMP_NUM_THREADS": "1"}
        return {**os.environ, **own}

    def by(self) -> list[str]:
        """Return the overrides of the executor."""
        return ["cluster=local"]

    def args(self, folder: str = "out") -> list[str]:
        """Return the overrides of the job."""
        job = ["+recipe=qwen3_8b", "backend=megatron", "runtime=native", "data.format=messages", "data.paths=[x.jsonl]"]
        size = [f"cluster.nodes={self.nodes}", "cluster.devices_per_node=8", "batch.global_batch_size=96"]
        save = ["estimate.enforce=false", "checkpoint.save_interval=5", f"output_dir={folder}"]
        return [*job, *self.by(), *size, *save, f"cluster.python={self.folder}/env/bin/python", *self.case.overrides]

    @property
    def out(self) -> Path:
        """The run's folder."""
        return self.folder / "out"

    def start(self, *more: str, wait: bool = True) -> "subprocess.Popen[bytes]":
        """Start the user's command."""
        with (self.folder / "shown").open("ab") as shown:
            process = subprocess.Popen(
                [
                    *self.prefix(),
                    sys.executable,
                    "-m",
                    "launcher",
                    "run",
                    *self.args(),
                    *more,
                    *self.waits(wait),
                ],
                cwd=self.folder,
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=shown,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.process = self.process or process
        return process

    def prefix(self) -> list[str]:
        """Return the words before the user's command."""
        return []

    def waits(self, wait: bool) -> list[str]:
        """Return the word with which the command waits for the end of a job in a queue."""
        return []

    def launch(self, *words: str, timeout: float = 120, **env: str) -> Finished:
        """Run `launch WORDS` to its end."""
        return self.server.run(words, cwd=self.folder, env={**self.environ, **env}, timeout=timeout)

    def shown(self) -> str:
        """Return what the user's command has printed."""
        return text_of(self.folder / "shown")

    def log(self, node: int) -> str:
        """Return what a node has printed."""
        return text_of(self.out / "logs" / f"node{node}.log")

    def begin(self) -> None:
        """Start the job, and wait until all nodes train and the first checkpoint is there."""
        self.start(wait=self.case.wait)
        wait_until(self.trains, 90, "the ranks do not train")

    def trains(self) -> bool:
        """Return whether all nodes train, and the first checkpoint is complete."""
        assert self.process is not None
        if self.process.poll() not in (None, 0):
            raise NotReached(f"the job does not start, exit code {self.process.returncode}:\n{self.shown()}")
        return self.saved() > 0 and all("6/10" in self.log(node) for node in range(self.nodes))

    def saved(self) -> int:
        """Return the iteration of the newest complete checkpoint; 0: there is none."""
        files = self.folder.glob("out*/checkpoints/v0/*/latest_checkpointed_iteration.txt")
        return max((int(text) for file in files if (text := text_of(file).strip())), default=0)

    def touch(self, name: str, text: str = "") -> None:
        """Tell the ranks something (trainer.py)."""
        (self.folder / name).write_text(text)

    def status(self) -> dict[str, Any]:
        """Return `launch status --json`."""
        done = self.launch("status", self.id or "out", "--json")
        try:
            tree = json.loads(done.out)
        except ValueError:
            return {"state": "", "why": f"{done.out}{done.err}"[-300:]}
        return tree if isinstance(tree, dict) else {}

    # -- its processes

    def processes(self) -> Iterator[tuple[int, str, dict[str, str]]]:
        """Yield the processes of this case on all machines: number, command line, environment."""
        mark = str(self.folder)
        for entry in Path("/proc").glob("[0-9]*"):
            line = text_of(entry / "cmdline").replace("\0", " ")
            environ = text_of(entry / "environ") if line else ""
            if mark in line or mark in environ:
                pairs = (pair.partition("=") for pair in environ.split("\0"))
                yield int(entry.name), line, {name: value for name, _, value in pairs}

    def left(self) -> list[str]:
        """Return the command lines of what still runs."""
        return [f"{pid} {line[:200]}" for pid, line, _ in self.processes() if self.counts(line)]

    def left_at_last(self) -> list[str]:
        """Return the command lines of what still runs after some seconds: a node's recorder ends a second after it."""
        with contextlib.suppress(NotReached):
            wait_until(lambda: not self.left(), 20, "")
        return self.left()

    def counts(self, line: str) -> bool:
        """Return whether a process would be left by the launcher; others belong to the cluster."""
        return True

    def pids(self, part: str, node: int = 1) -> list[int]:
        """Return the process of a part; of several with the same command line the outermost."""
        if part == "launcher":
            return [self.process.pid] if self.process is not None else []
        text, of_node = self.PARTS[part]
        node = min(node, self.nodes - 1)
        found = [
            pid for pid, line, environ in self.processes()
            if text in line and (not of_node or self.node_of(environ) == str(node))
        ]  # fmt: skip
        return [pid for pid in found if _parent(pid) not in found]

    def node_of(self, environ: dict[str, str]) -> str:
        """Return the node's rank in an environment."""
        return environ.get("NODE_RANK", "")

    def signal(self, name: str, part: str, node: int = 1) -> None:
        """Send a signal to a part."""
        number = getattr(signal, f"SIG{name}")
        wait_until(lambda: self.pids(part, node), 10, f"there is no {part}")
        found = sorted(self.pids(part, node), key=lambda pid: int(_stat(pid)[19]))  # by their start, proc_pid_stat(5)
        # Of ranks the last; of others the first: what it started may look like it.
        os.kill(found[-1 if part == "rank" else 0], number)

    # -- its end

    def play(self) -> Result:
        """Do the case and measure it."""
        began = time.monotonic()
        found = Result()
        try:
            if self.case.starts:
                self.begin()
                self.find_id()
            self.case.do(self)
            if self.case.finish:
                self.touch("go")
            found = self.measure()
        except NotReached as error:
            self.problems.append(str(error))
        except (OSError, subprocess.SubprocessError, AssertionError, RuntimeError) as error:
            self.problems.append(f"{type(error).__name__}: {error}"[:500])
        finally:
            for undo in reversed(self.undo):
                with contextlib.suppress(Exception):
                    undo()
            self.end()
        seconds = round(time.monotonic() - began, 1)
        return judged(self.case, Result(**{**_fields(found), "seconds": seconds}), self.problems)

    def only_one_id(self) -> None:
        """Keep the id of the one run of the folder: two launchers have printed theirs."""
        self.id = str(json.loads(text_of(self.out / "run" / "run.json"))["id"])

    def find_id(self) -> None:
        """Keep the run's id: its folder may go."""
        if self.id:
            return
        match = _RUN_ID.search(self.shown())
        self.id = match[1] if match else ""

    def measure(self) -> Result:
        """Wait for the end and look at what remains."""
        self.find_id()
        code: int | None = None
        if self.process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = self.process.wait(self.case.settle + 30)
                code = code if code >= 0 else 128 - code
        shown = self.settled()
        left = self.left_at_last()
        if left:
            print(f"left of {self.case.key}: {left}", file=sys.stderr)
        failure = shown.get("failure") or {}
        reason = " ".join(filter(None, (failure.get("reason"), shown.get("why"))))
        result = Result(
            state=str(shown.get("state") or ""), reason=reason, code=code, left=len(left), saved=self.saved()
        )
        if self.case.resumes:
            return Result(**{**_fields(result), "resumed": self.resume()})
        return result

    def settled(self) -> dict[str, Any]:
        """Return the status once it is as expected, has been another end for some seconds, or the time is over."""
        deadline = time.monotonic() + self.case.settle
        since = time.monotonic()
        shown = self.status()
        while shown.get("state") != self.case.state and time.monotonic() < deadline:
            if shown.get("state") not in ENDED:
                since = time.monotonic()
            elif time.monotonic() - since > _LATE_SECONDS:
                break
            time.sleep(1)
            shown = self.status()
        return shown

    def resume(self) -> bool:
        """Return whether `launch resume` goes on from the newest checkpoint and completes the run."""
        before = self.saved()
        self.touch("go")
        done = self.launch("resume", self.id, *self.waits(True), timeout=150)
        went_on = f"starts from iteration {before}" in self.log(0)
        shown = self.status()
        if done.code or not went_on or shown.get("state") != "done":
            self.problems.append(f"resume: {done.code} {shown.get('state')} {done.err[-300:]} {self.log(0)[-300:]}")
            return False
        if left := self.left_at_last():
            self.problems.append(f"left after resume: {left}")
        return True

    def end(self) -> None:
        """End what the case left."""
        for pid, _, _ in list(self.processes()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self.process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(20)

    def remove(self) -> None:
        """Remove its folder."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _fields(result: Result) -> dict[str, Any]:
    return {name: getattr(result, name) for name in Result.__dataclass_fields__}


def _stat(pid: int) -> list[str]:
    return text_of(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split() or ["0"] * 20


def _parent(pid: int) -> int:
    return int(_stat(pid)[1])
