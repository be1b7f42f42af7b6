"""What verbs cost for a run of very many nodes, each beside a run of few: seconds of CPU, bytes shown and written.

python -m tools.bench.scale [--nodes 100,10000] [--folder DIR]

Every figure is that of the whole command, start of Python included, as a user runs it. The nodes are simulated: their
logs, exits and progress files are written by this program, as `launcher/executors/shell/node.sh` writes them; and the
queue is a fake one, four scripts with the names of Slurm's commands that answer at once. So is ssh: it holds its
connection until its standard input ends, and runs nothing.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_LINES = 200
_ITERATION = "{{'loss': 1.0, 'iteration': '{}/1000'}}\n"
_LOST = "[rank{}] RuntimeError: [../gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.2]:31000\n"
_CAUSE = "[rank{}] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.63 GiB\n"
_FAKE_QUEUE = {
    "sbatch": 'case "$*" in *--test-only*) ;; *) echo 1 ;; esac',
    "squeue": 'echo "1|$(cat {folder}/state)|None|n[1-{nodes}]"',
    "scancel": "echo CANCELLED >{folder}/state",
    "scontrol": 'case "$*" in *hostnames*) seq -f "n%g" 1 {nodes} ;; *) exit 1 ;; esac',
    "sacct": "exit 1",
    # Asked for a port it answers with the one that it was given, which is its last word.
    "ssh": (
        'case "$*" in *"\'port\'"*) grep -oE \'[0-9]+\' <<<"${*: -1}" | tail -n 1 ;; '
        "*) echo >>{folder}/connected; cat >/dev/null ;; esac"
    ),
}
_CONNECT_SECONDS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one command cost, with the processes that it started: seconds of CPU, bytes of output, bytes of files."""

    seconds: float
    shown: int
    written: int = 0


class Simulated:
    """A folder with a run of so many nodes, and what it takes to ask this program about it."""

    def __init__(self, folder: Path, nodes: int) -> None:
        self.folder, self.nodes = folder, nodes
        programs = folder / "env" / "bin"
        programs.mkdir(parents=True)
        for name, text in {**_FAKE_QUEUE, "megatron": "exit 0"}.items():
            (programs / name).write_text(
                f"#!/bin/bash\n{text.replace('{folder}', str(folder)).replace('{nodes}', str(nodes))}\n"
            )
            (programs / name).chmod(0o755)
        (folder / "train.jsonl").write_text('{"messages": []}\n' * 100)
        (folder / "state").write_text("RUNNING")
        (folder / "hosts").write_text("".join(f"n{node}\n" for node in range(nodes)))

    def launch(self, *words: str, code: int = 0) -> Cost:
        """Run a command and return what it cost."""
        path = f"{self.folder}/env/bin:{os.environ['PATH']}"
        env = {**os.environ, "PYTHONPATH": str(ROOT), "LAUNCH_HOME": f"{self.folder}/home", "PATH": path}
        before = _used()
        done = subprocess.run(
            [sys.executable, "-m", "launcher", *words], cwd=self.folder, env=env, capture_output=True, check=False
        )
        seconds = _used() - before
        if done.returncode != code:
            raise SystemExit(f"launch {' '.join(words)}: exit code {done.returncode}\n{done.stderr.decode()[-2000:]}")
        return Cost(seconds=seconds, shown=len(done.stdout))

    def job(self, executor: str) -> list[str]:
        """Return the overrides of the job."""
        job = ["+recipe=qwen3_8b", "backend=megatron", "runtime=native", "data.format=messages"]
        job += ["data.paths=[train.jsonl]", "estimate.enforce=false", f"cluster.python={self.folder}/env/bin/python"]
        job += [f"cluster.nodes={self.nodes}", f"batch.global_batch_size={self.nodes * 32}", f"cluster={executor}"]
        job += ["checkpoint.save_interval=100", "fault_tolerance.hang_minutes=20"]
        # Hydra's parser takes a time that is quadratic in the length of a list: 20 s for 10,000 names.
        return job + (["cluster.host_file=hosts"] if executor == "ssh" else [])

    def runs(self) -> None:
        """Let the nodes print and the last one write its iterations, as one rank of a training does."""
        (self.folder / "out/run/progress").mkdir()
        for node in range(self.nodes):
            lines = "".join(_ITERATION.format(number) for number in range(_LINES))
            (self.folder / f"out/logs/node{node}.log").write_text(lines)
        (self.folder / f"out/run/progress/{self.nodes - 1}").write_text(_ITERATION.format(_LINES))

    def fails(self) -> None:
        """Let one node run out of memory, and all others lose their connection to it before that is seen."""
        exits = self.folder / "out/run/exits"
        exits.mkdir()
        first = self.nodes - 7
        for node in range(self.nodes):
            text = (_CAUSE if node == first else _LOST).format(node * 8 + 3)
            with (self.folder / f"out/logs/node{node}.log").open("a") as log:
                log.write(text)
            (exits / f"0.{node}").write_text(f"1 n{node} \n{text}")
            os.utime(exits / f"0.{node}", (1_800_000_000 + node / 1000, 1_800_000_000 + node / 1000))
        status = '{"state": "failed", "code": 1, "attempt": 0, "restarts": 0, "reason": "", "at": ""}\n'
        (self.folder / "out/run/status.json").write_text(status)
        (self.folder / "state").write_text("FAILED")

    def size(self, *names: str) -> int:
        """Return the bytes of files below folders."""
        return sum(path.stat().st_size for name in names for path in (self.folder / name).rglob("*") if path.is_file())


def _used() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def costs(sim: Simulated) -> Iterator[tuple[str, Cost]]:
    """Yield each verb and what it cost, in the order of a run's life."""
    for executor in ("slurm", "ssh"):
        yield f"dry-run --json ({executor})", sim.launch("dry-run", *sim.job(executor), "--json")
        render = sim.launch("dry-run", *sim.job(executor), "--render", f"files-{executor}")
        yield (
            f"render ({executor})",
            Cost(seconds=render.seconds, shown=render.shown, written=sim.size(f"files-{executor}")),
        )
    submit = sim.launch("run", *sim.job("slurm"), "output_dir=out")
    yield "submit (fake queue)", Cost(seconds=submit.seconds, shown=submit.shown, written=sim.size("out"))
    sim.runs()
    yield "ps", sim.launch("ps")
    yield "status, running", sim.launch("status", "out")
    yield "logs --tail 1", sim.launch("logs", "out", "--tail", "1")
    yield "logs --rank", sim.launch("logs", "out", "--rank", "3")
    yield "logs, all", sim.launch("logs", "out")
    yield "hang watch, one look", _look(sim)
    yield "stop (fake queue)", sim.launch("stop", "out", "--no-wait")
    (sim.folder / "out/run/stop.json").unlink()
    sim.fails()
    yield "status, failed", sim.launch("status", "out")
    yield "status --json, failed", sim.launch("status", "out", "--json")


def connections(sim: Simulated) -> Iterator[tuple[str, int, Cost]]:
    """Yield who connects over ssh when the rendered files start all nodes, to how many, and what that costs."""
    run = sim.folder / "files-ssh" / "run"
    yield "from here", *_connected(sim, [f"{run}/start.sh"], {})
    if (run / "relay.sh").exists():
        size = -(-sim.nodes // 100)
        own = {"ATTEMPT": "0", "MASTER_PORT": "29000", "LAUNCH_RESUME": ""}
        yield "from the first of a group", *_connected(sim, [f"{run}/relay.sh", "0", str(size)], own, b".\0")


def _connected(sim: Simulated, words: list[str], env: dict[str, str], text: bytes = b"") -> tuple[int, Cost]:
    """Start a script, wait until it makes no more connections, and end it."""
    log, before, count = sim.folder / "connected", _used(), -1
    log.write_text("")
    path = f"{sim.folder}/env/bin:{os.environ['PATH']}"
    with subprocess.Popen(
        ["bash", *words], env={**os.environ, "PATH": path, **env}, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    ) as process:
        assert process.stdin is not None
        process.stdin.write(text)
        process.stdin.flush()
        deadline = time.monotonic() + _CONNECT_SECONDS
        while (now := log.stat().st_size) != count or not now:
            if time.monotonic() > deadline:
                raise SystemExit(f"{words[0]}: {now} connections")
            count = now
            time.sleep(5)
        process.terminate()
        process.stdin.close()
        process.wait(120)
    return count, Cost(seconds=_used() - before, shown=0)


def _look(sim: Simulated) -> Cost:
    """Return what a look at the progress costs the script that watches a run (`supervise.sh`)."""
    before = _used()
    done = subprocess.run(
        ["bash", "-c", 'run=out/run; cat "$run"/progress/[0-9]*'], cwd=sim.folder, capture_output=True, check=True
    )
    return Cost(seconds=_used() - before, shown=len(done.stdout))


def main() -> None:
    """Print a table: a line for each verb, with the figures of every number of nodes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", default="100,10000")
    parser.add_argument("--folder", help="where the runs are simulated (default: a temporary folder)")
    options = parser.parse_args()
    counts = [int(text) for text in options.nodes.split(",")]
    found: list[dict[str, Cost]] = []
    with ExitStack() as stack:
        for nodes in counts:
            folder = stack.enter_context(tempfile.TemporaryDirectory(dir=options.folder, prefix="scale-"))
            found.append({})
            sim = Simulated(Path(folder), nodes)
            for verb, cost in costs(sim):
                print(f"{nodes} nodes, {verb}: {cost.seconds:.2f} s", file=sys.stderr, flush=True)
                found[-1][verb] = cost
            for place, count, cost in connections(sim):
                print(f"{nodes} nodes, ssh connections {place}: {count}, {cost.seconds:.2f} s of CPU", flush=True)
    print(" " * 26 + "".join(f"{f'{nodes} nodes':^38}" for nodes in counts))
    print(" " * 26 + "".join(f"{'CPU s':>10}{'shown kB':>14}{'files kB':>14}" for _ in counts))
    for verb in found[0]:
        cells = (each[verb] for each in found)
        row = "".join(f"{c.seconds:10.2f}{c.shown / 1000:14.1f}{c.written / 1000 or '':>14}" for c in cells)
        print(f"{verb:26}{row}", flush=True)


if __name__ == "__main__":
    main()
