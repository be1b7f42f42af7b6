"""Jobs over ssh and through Slurm on machines of their own (tests/cluster), with faults of machines and controllers."""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from tests.cluster.machines import Machines
from tests.commands import CommandServer
from tools.bench.faults.case import Case
from tools.bench.faults.stage import NotReached, Stage, text_of, wait_until


class MachineStage(Stage):
    """A job on machines n1, n2, …"""

    PARTS: ClassVar[dict[str, tuple[str, bool]]] = {**Stage.PARTS, "wrapper": ("run/node.sh", True)}

    def __init__(self, folder: Path, server: CommandServer, case: Case, machines: Machines) -> None:
        super().__init__(folder, server, case)
        self.machines = machines

    @property
    def environ(self) -> dict[str, str]:
        """The user's environment."""
        return {**super().environ, **self.machines.env}

    def node_of(self, environ: dict[str, str]) -> str:
        """Return the node's rank in an environment, of Slurm before our script has set it."""
        return environ.get("NODE_RANK") or environ.get("SLURM_NODEID", "")

    def host(self, node: int = 1) -> str:
        """Return the machine of a node."""
        return f"n{node + 1}"

    def cut(self, node: int = 1) -> None:
        """Cut a machine's network until the end of the case."""
        host = self.host(node)
        self.machines.call("link", host, "down")
        self.undo.append(lambda: self.machines.call("link", host, "up"))

    def crash(self, node: int = 1) -> None:
        """Let a machine die: nothing is reported, and what it ran is gone; at the end of the case it boots."""
        host = self.host(node)
        self.machines.call("link", host, "down")
        keep = self.machines.holder(host)
        for pid, _ in self.machines.processes(host):
            if pid != keep:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.undo.append(lambda: self.boot(host))

    def boot(self, host: str) -> None:
        """Start a machine's services."""
        self.machines.call("link", host, "up")
        self.machines.call("sshd", host, check=False)


class SshStage(MachineStage):
    """A job over ssh."""

    PARTS: ClassVar[dict[str, tuple[str, bool]]] = {**MachineStage.PARTS, "conductor": ("out/run/start.sh", False)}

    def by(self) -> list[str]:
        """Return the overrides of the executor."""
        hosts = ",".join(f"n{number + 1}" for number in range(self.nodes))
        return ["cluster=ssh", f"cluster.hosts=[{hosts}]", self.machines.ssh_options]

    def pids(self, part: str, node: int = 1) -> list[int]:
        """Return the process of a part."""
        if part != "connection":
            return super().pids(part, node)
        return [pid for pid, line, _ in self.processes() if line.startswith("ssh ") and f"NODE_RANK={node}" in line]


class SlurmStage(MachineStage):
    """A job through Slurm."""

    PARTS: ClassVar[dict[str, tuple[str, bool]]] = {**MachineStage.PARTS, "conductor": ("slurm_script", False)}

    def by(self) -> list[str]:
        """Return the overrides of the executor."""
        return ["cluster=slurm", "cluster.gres=''", "cluster.exclusive=false"]

    def waits(self, wait: bool) -> list[str]:
        """Return the word with which the command waits."""
        return ["--wait"] if wait else []

    def pids(self, part: str, node: int = 1) -> list[int]:
        """Return the process of a part."""
        if part == "stepd":
            return [
                pid for pid, line in self.machines.processes(self.host(node)) if f"slurmstepd: [{self.job}." in line
            ]
        if part == "connection":
            found = [pid for pid, line, _ in self.processes() if line.startswith("srun ")]
            return found[:1]
        return super().pids(part, node)

    @property
    def job(self) -> str:
        """The job's number."""
        return str(json.loads(text_of(self.out / "run" / "run.json"))["handle"]["job"])

    def slurm(self, *args: str) -> str:
        """Run one of Slurm's commands."""
        return self.machines.slurm(*args)

    def controller(self, name: str) -> None:
        """Send a signal to slurmctld, once it has saved that the job runs; it starts again when the case ends."""
        saved, began = self.machines.root / "state" / "job_state", time.time()
        with contextlib.suppress(NotReached):  # it saves changes only, within some seconds
            wait_until(lambda: saved.stat().st_mtime > began, 10, "")
        os.kill(int(text_of(self.machines.root / "slurmctld.pid")), getattr(signal, f"SIG{name}"))
        self.undo.append(self.controller_up)
        time.sleep(1)

    def controller_up(self) -> None:
        """Start slurmctld, if it does not run."""
        pid = text_of(self.machines.root / "slurmctld.pid").strip()
        if not (pid and Path(f"/proc/{pid}").exists() and "slurmctld" in text_of(Path(f"/proc/{pid}/cmdline"))):
            self.machines.call("slurmctld")
        wait_until(
            lambda: self.slurm("squeue", "-h") is not None and "UP" in self.slurm("scontrol", "ping"), 30, "slurmctld"
        )

    def now(self) -> None:
        """Start a requeued job at once; Slurm would wait two minutes."""
        wait_until(lambda: self.status().get("state") == "queued", 60, f"not queued: {self.status()}")
        wait_until(lambda: self.again() == "RUNNING", 60, f"it does not start again: {self.again()}")

    def again(self) -> str:
        """Ask for the job's start now, and return its state."""
        self.slurm("scontrol", "update", f"JobId={self.job}", "StartTime=now")
        return self.slurm("squeue", "-h", "-j", self.job, "-o", "%T").strip()

    def boot(self, host: str) -> None:
        """Start a machine's services, and wait until Slurm uses it."""
        super().boot(host)
        self.slurm("scontrol", "update", f"NodeName={host}", "State=DOWN", "Reason=test")
        self.machines.call("slurmd", host, check=False)
        self.slurm("scontrol", "update", f"NodeName={host}", "State=RESUME")

    def end(self) -> None:
        """End the job, and wait until all machines are free."""
        with contextlib.suppress(Exception):
            self.controller_up()
        jobs = self.slurm("squeue", "-h", "-o", "%i").split()
        if jobs:
            self.slurm("scancel", *jobs)
        super().end()
        for _ in range(60):
            nodes = self.slurm("sinfo", "-h", "-N", "-p", "debug", "-o", "%N %t").splitlines()
            if nodes and all(line.endswith(" idle") for line in nodes) and not self.slurm("squeue", "-h"):
                break
            for line in nodes:
                name, state = line.split()
                if state.startswith(("down", "drain")):
                    self.slurm("scontrol", "update", f"NodeName={name}", "State=RESUME")
            super().end()
            time.sleep(1)


def stages(machines: Machines) -> Iterator[Machines]:
    """Yield machines, and take them down afterwards."""
    try:
        yield machines
    finally:
        with contextlib.suppress(RuntimeError, subprocess.SubprocessError):
            machines.call("down", check=False)
