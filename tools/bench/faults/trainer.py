#!/usr/bin/env python3
"""Stands for a training program: `megatron` starts ranks as torchrun does; they train until the file `go` is there.

Run with the arguments and the environment of `megatron`; as `trainer.py rank …` it is one rank.
A rank saves at iteration 5, and at 7 if SIGTERM asks it to end; started from a checkpoint, it goes on from it.
Files of the folder that holds this program's environment: `go` (train to the end), `hang` (print no iterations),
`slow` (take 3 s to end), `eat` (take memory until the kernel ends this rank; only where NODE_RANK is its content).
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parents[2]
TRACKER = "latest_checkpointed_iteration.txt"
RANKS = 2
# As torchrun: torch/distributed/elastic/agent/server/local_elastic_agent.py and multiprocessing/errors/__init__.py.
FAILED = """torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
{name} FAILED
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  host      : {host}
  rank      : {rank} (local_rank: {local})
  exitcode  : {code} (pid: {pid})
  error_file: <N/A>
  traceback : {why}
============================================================"""


def step(iteration: int) -> None:
    """Print an iteration as ms-swift does."""
    print(f"{{'loss': 1.0, 'iteration': '{iteration}/10'}}", flush=True)


def checkpoint(save: Path, iteration: int) -> None:
    """Write a checkpoint; its tracker file is the last of it."""
    folder = save / "v0" / f"checkpoint-{iteration}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "weights").write_bytes(b"\0" * 200_000)
    (folder / TRACKER).write_text(f"{iteration}\n")


def join(node: str) -> None:
    """Wait for the other nodes: as in a training, none saves before all have started."""
    (HERE / f"joined-{node}").touch()
    deadline = time.monotonic() + 60
    while len(list(HERE.glob("joined-*"))) < int(os.environ.get("NNODES", "1")) and time.monotonic() < deadline:
        time.sleep(0.1)


def rank(local: int, save: Path, load: str) -> int:
    """Train as one rank."""
    node = os.environ.get("NODE_RANK", "0")
    first = node == "0" and local == 0

    def stop(*_: object) -> None:
        time.sleep(3 if (HERE / "slow").exists() else 0)
        if first:
            checkpoint(save, 7)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)

    signal.signal(signal.SIGTERM, stop)
    begun = 1
    if load:
        begun = int((Path(load) / TRACKER).read_text())
        print(f"starts from iteration {begun}", flush=True)
    elif local == 0:
        join(node)
        step(1)
        if first:
            checkpoint(save, 5)
        step(6)
    held: list[bytes] = []
    turn = 0
    while not (HERE / "go").exists():
        time.sleep(0.1)
        turn += 1
        if local == 0 and turn % 20 == 0 and not (HERE / "hang").exists():
            step(7 + turn // 20 % 2)
        if local == 1 and (HERE / "eat").exists() and (HERE / "eat").read_text() == node:
            assert len(held) < 50, "nothing limits the memory of this rank"
            held.append(bytes([1]) * 20_000_000)
        if (HERE / "save").exists() and first:
            checkpoint(save, 8)
    if first:
        checkpoint(save, 10)
    if local == 0:
        step(10)
    return 0


def value(flag: str) -> str:
    """Return the value of an argument; "" if it is not there."""
    return sys.argv[sys.argv.index(flag) + 1] if flag in sys.argv else ""


def main() -> int:
    """Start the ranks and wait for them; the first that fails ends the others."""
    save, load = value("--output_dir"), value("--mcore_model")
    got: list[int] = []
    for caught in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(caught, lambda number, _: got.append(number))
    node, host, port = os.environ.get("NODE_RANK", "0"), os.uname().nodename, os.environ.get("MASTER_PORT")
    print(f"rank {node} on {host} at {port}, load={load}", flush=True)
    words = [sys.executable, "-I", "-S", __file__, "rank"]
    ranks = [subprocess.Popen([*words, str(local), save, load]) for local in range(RANKS)]
    while True:
        codes = [each.poll() for each in ranks]
        if got:
            for each in ranks:
                each.send_signal(got[0])
            for each in ranks:
                each.wait()
            name = "torch.distributed.elastic.multiprocessing.api.SignalException"
            print(f"{name}: Process {os.getpid()} got signal: {got[0]}")
            return 1
        if any(codes):
            local = next(index for index, code in enumerate(codes) if code)
            code, pid = codes[local] or 0, ranks[local].pid
            why = "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"
            if code < 0:
                why = f"Signal {-code} ({signal.Signals(-code).name}) received by PID {pid}"
            for each in ranks:
                each.kill()
                each.wait()
            number = int(node) * RANKS + local
            print(f"failed (exitcode: {code}) local_rank: {local} (pid: {pid}) of binary: {sys.executable}")
            print(FAILED.format(name=__file__, host=host, rank=number, local=local, code=code, pid=pid, why=why))
            return 1
        if all(code == 0 for code in codes):
            return 0
        time.sleep(0.05)


if __name__ == "__main__":
    if sys.argv[1:2] == ["rank"]:
        sys.exit(rank(int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]))
    sys.exit(main())
