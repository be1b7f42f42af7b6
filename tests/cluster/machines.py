"""Three machines in namespaces of this one, reached by ssh and by Slurm, and what tests ask of them."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.commands import ROOT, Finished
from tests.waiting import wait_until

SCRIPT = Path(__file__).parent / "cluster.sh"
COUNT = 3
# A loaded machine needs that long for three nodes with sshd and slurmd.
_UP_SECONDS = 180
_SSH = ("ip", "unshare", "nsenter", "/usr/sbin/sshd", "ssh", "ssh-keygen")
_SLURM = ("slurmctld", "slurmd", "sbatch", "munged")


def lacking(*, slurm: bool) -> str:
    """Return why the machines cannot be made here; "" if they can."""
    if os.geteuid() != 0:
        return "namespaces need root"
    missing = [name for name in (*_SSH, *(_SLURM if slurm else ())) if shutil.which(name) is None]
    if missing:
        packages = "iproute2 openssh-server openssh-client" + (" slurm-wlm munge" if slurm else "")
        return f"missing {', '.join(missing)}: apt-get install {packages}"
    tried = subprocess.run(["unshare", "-m", "-u", "-n", "true"], capture_output=True, text=True, check=False)
    return f"namespaces: {tried.stderr.strip()}" if tried.returncode else ""


@dataclass(frozen=True)
class Machines:
    """A cluster that is up."""

    root: Path

    @property
    def ssh_options(self) -> str:
        """The override that lets ssh find the machines."""
        return f"cluster.ssh_options=[-F,{self.root}/ssh_config]"

    @property
    def env(self) -> dict[str, str]:
        """The environment in which Slurm's commands find their cluster."""
        return {"SLURM_CONF": f"{self.root}/slurm.conf"}

    def call(self, *args: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
        """Run cluster.sh."""
        done = subprocess.run(
            [str(SCRIPT), args[0], str(self.root), *args[1:]],
            capture_output=True,
            text=True,
            check=False,
            timeout=_UP_SECONDS,
        )
        if check and done.returncode:
            raise RuntimeError(f"{args}: {done.stderr}")
        return done

    def space(self, node: str) -> Path:
        """Return the name that holds a machine's network namespace."""
        number = dict(pair.split("=") for pair in (self.root / "sizes").read_text().split())["number"]
        return Path(f"/run/netns/l{number}{node}")

    def holder(self, node: str) -> int:
        """Return the process that holds a machine's mounts and host name."""
        return int((self.root / f"{node}.ns").read_text().split()[0])

    def on(self, node: str, *args: str) -> str:
        """Run a command on a machine and return what it prints."""
        return self.call("in", node, *args).stdout

    @contextlib.contextmanager
    def holding(self, node: str, code: str, *args: str) -> Iterator[None]:
        """Run Python on a machine, from the first line that it prints to the end of the context."""
        command = [str(SCRIPT), "in", str(self.root), node, sys.executable, "-c", code, *args]
        with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
            assert process.stdout is not None
            process.stdout.readline()
            try:
                yield
            finally:
                os.killpg(process.pid, signal.SIGKILL)

    def processes(self, node: str) -> list[tuple[int, str]]:
        """Return the processes on a machine: number and command line, zombies left out."""
        space = self.space(node).stat()
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if not os.path.samestat((entry / "ns/net").stat(), space):
                    continue
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if line:
                found.append((int(entry.name), line))
        return found

    def kill(self, node: str, text: str, number: int = signal.SIGKILL) -> int:
        """Signal the processes on a machine whose command line holds a text; return how many there were."""
        chosen = [pid for pid, line in self.processes(node) if text in line]
        for pid in chosen:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        return len(chosen)

    def slurm(self, *args: str) -> str:
        """Run one of Slurm's commands."""
        return subprocess.run(args, env={**os.environ, **self.env}, capture_output=True, text=True, check=False).stdout


def up(root: Path) -> Machines:
    """Make the machines.

    Raises:
        RuntimeError: it failed, and nothing of them is left.
    """
    machines = Machines(root=root)
    try:
        machines.call("up", str(COUNT))
    except subprocess.TimeoutExpired:
        machines.call("down", check=False)
        raise
    return machines


# What the fake training program of most tests does; it stands for `megatron` on every machine.
PROGRAM = """#!/usr/bin/env bash
# arguments and environment are those of the real program
save='' load='' previous=''
for word in "$@"; do
  [ "$previous" != --output_dir ] || save=$word
  [ "$previous" != --mcore_model ] || load=$word
  previous=$word
done
step() { echo "{'loss': 1.0, 'iteration': '$1/10'}"; }
checkpoint() {
  mkdir -p "$save/v0/checkpoint-$1"
  echo "$1" >"$save/v0/checkpoint-$1/latest_checkpointed_iteration.txt"
}
echo "rank $NODE_RANK of $NNODES on $(hostname), master $MASTER_ADDR:$MASTER_PORT, load=$load"
"""


@dataclass
class Site:
    """A folder from which jobs are launched onto machines, with a training program of its own."""

    folder: Path
    machines: Machines
    started: list["subprocess.Popen[str]"] = field(default_factory=list)

    @property
    def environ(self) -> dict[str, str]:
        """The user's environment."""
        own = {"PYTHONPATH": str(ROOT), "LAUNCH_HOME": f"{self.folder}.launch", "OMP_NUM_THREADS": "1"}
        return {**os.environ, **self.machines.env, **own}

    def program(self, body: str) -> str:
        """Write the program and return the override that makes jobs use it."""
        program = self.folder / "env" / "bin" / "megatron"
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(PROGRAM + body + "\n")
        program.chmod(0o755)
        return f"cluster.python={program.parent}/python"

    def args(self, executor: str, nodes: int = 2) -> list[str]:
        """Return the overrides of a job that runs the program."""
        hosts = ",".join(f"n{number}" for number in range(1, nodes + 1))
        by = {
            "ssh": ["cluster=ssh", f"cluster.hosts=[{hosts}]", self.machines.ssh_options],
            "slurm": ["cluster=slurm", "cluster.gres=''", "cluster.exclusive=false"],
        }[executor]
        job = ["+recipe=qwen3_8b", "backend=megatron", "runtime=native", "data.format=messages", "data.paths=[x.jsonl]"]
        size = [f"cluster.nodes={nodes}", "cluster.devices_per_node=8", "estimate.enforce=false"]
        size.append("batch.global_batch_size=96")
        save = ["checkpoint.save_interval=5", "output_dir=out"]
        return [*job, *by, *size, *save, f"cluster.python={self.folder}/env/bin/python"]

    def launch(self, *args: str, timeout: float = 240, env: Mapping[str, str] | None = None) -> Finished:
        """Run `launch WORDS` to its end."""
        done = subprocess.run(
            [sys.executable, "-m", "launcher", *args],
            cwd=self.folder,
            env={**self.environ, **(env or {})},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        return Finished(done.returncode, done.stdout, done.stderr)

    def start(self, *args: str) -> "subprocess.Popen[str]":
        """Start `launch WORDS` and go on."""
        process = subprocess.Popen(
            [sys.executable, "-m", "launcher", *args],
            cwd=self.folder,
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.started.append(process)
        return process

    def log(self, node: int = 0) -> str:
        """Return what a node has printed so far."""
        return self.log_of("out", node)

    def log_of(self, folder: str, node: int = 0) -> str:
        """Return what a node of the run in a folder has printed so far."""
        path = self.folder / folder / "logs" / f"node{node}.log"
        return path.read_text() if path.exists() else ""

    def left(self) -> list[str]:
        """Return the command lines that belong to a job and still run on some machine."""
        marks = ("run/node.sh", "run/command.sh", "run/resume.sh", "env/bin/megatron", "rehearse.core", "sleep 3")
        found = [line for node in ("n1", "n2", "n3") for _, line in self.machines.processes(node)]
        return [line for line in found if any(mark in line for mark in marks)]


def sites(folder: Path, machines: Machines) -> Iterator[Site]:
    """Yield a site, and end what a failed test left of it."""
    site = Site(folder=folder, machines=machines)
    yield site
    for process in site.started:
        process.kill()
        process.wait()
    for arg in machines.slurm("squeue", "-h", "-o", "%i").split():
        machines.slurm("scancel", arg)
    wait_until(lambda: not site.left(), site.left)
