"""Processes that really end in each way, started as a run starts them, and what is then said of them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from launcher.executors.begin import begin, run_here
from launcher.executors.render import node_files
from launcher.observe.failure import Failure, first_failure
from launcher.observe.find import find_run
from launcher.plan import LaunchPlan, NodePlan, Start
from launcher.plan.executor import Place
from tests.conftest import ROOT


@pytest.fixture(autouse=True)
def isolated_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAUNCH_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.chdir(tmp_path)


def failure(*argv: str, devices: int = 1) -> Failure:
    node = NodePlan(rank=0, argv=argv)
    plan = LaunchPlan(nodes=(node,), output_dir="out", start=Start(name="tiny", devices_per_node=devices))
    begun = begin(plan, {})
    run_here(begun, quiet=True)
    found = first_failure(find_run(begun.place.id))
    assert found is not None
    return found


ENDS = {
    "SIGKILL": (signal.SIGKILL, 137, "killed"),
    "SIGSEGV": (signal.SIGSEGV, 139, "segmentation-fault"),
    "SIGABRT": (signal.SIGABRT, 134, "aborted"),
    "SIGBUS": (signal.SIGBUS, 135, "bus-error"),
    "SIGFPE": (signal.SIGFPE, 136, "arithmetic-fault"),
    "SIGILL": (signal.SIGILL, 132, "illegal-instruction"),
    "SIGTERM": (signal.SIGTERM, 143, "terminated"),
}


@pytest.mark.parametrize("name", ENDS)
def test_a_process_that_a_signal_ends(name):
    number, code, reason = ENDS[name]
    found = failure(sys.executable, "-c", f"import os; print('step 1'); os.kill(os.getpid(), {int(number)})")
    assert (found.code, found.reason, found.rank) == (code, reason, 0)
    assert found.evidence == "exit code of the node"


RAISES = {
    "a missing file": ("open('/no/such/file')", "missing-file"),
    "a missing package": ("import no_such_package", "missing-module"),
    "no permission": ("raise PermissionError(13, 'Permission denied', '/data')", "permission"),
    "a full disk": ("f = open('/dev/full', 'w'); f.write('x'); f.flush()", "disk-full"),
    "too many files": (
        "import resource as r; r.setrlimit(r.RLIMIT_NOFILE, (9, 9)); k = [open('/dev/null') for _ in range(9)]",
        "open-files",
    ),
    "a refused argument": (
        "import argparse, sys; sys.argv = ['pretrain_gpt.py', '--nonsense']; argparse.ArgumentParser().parse_args()",
        "unknown-argument",
    ),
    "no memory": (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 30,) * 2); x = bytearray(1 << 33)",
        "host-out-of-memory",
    ),
    "a port in use": (
        "import socket; a, b = socket.socket(), socket.socket(); a.bind(('127.0.0.1', 0)); b.bind(a.getsockname())",
        "port-taken",
    ),
    "anything else": ("{}['hidden_size']", "exception"),
    "without a word": ("import os; os._exit(3)", ""),
    "ignored, then without a word": (
        "import os, gc\nclass A:\n    def __del__(self): raise FileNotFoundError('x')\na = A(); del a; os._exit(3)",
        "",
    ),
}


@pytest.mark.parametrize("name", RAISES)
def test_a_program_that_raises(name):
    code, reason = RAISES[name]
    found = failure(sys.executable, "-c", code)
    assert found.reason == reason, found
    if reason:
        path, _, number = found.evidence.rpartition(":")
        assert found.message in Path(path).read_text().splitlines()[int(number) - 1]
    else:
        assert "unknown reason" in found.lines()[0]


def test_a_program_that_is_not_there():
    assert failure("bash", "-c", "exec no-such-program").reason == "missing-program"


# -- a limit of memory, by the kernel itself
MEMORY = Path("/sys/fs/cgroup/memory")


def cgroup() -> Path:
    """Return a new cgroup that this process may write to; skip where there is none."""
    made = MEMORY / f"launch-test-{os.getpid()}"
    try:
        made.mkdir()
        (made / "memory.limit_in_bytes").write_text(str(300 << 20))
    except OSError:
        pytest.skip("needs root and a cgroup of version 1 at /sys/fs/cgroup/memory")
    return made


def remove(group: Path) -> None:
    for _ in range(50):  # its last process may still be ending
        try:
            group.rmdir()
            return
        except OSError:
            time.sleep(0.1)


def test_a_process_that_the_out_of_memory_killer_ends(tmp_path):
    group = cgroup()
    script = tmp_path / "launched.py"
    script.write_text(
        "from tests.observe.test_real_failures import failure\nimport sys\n"
        "code = 'x = []\\nwhile True: x.append(bytearray(8 << 20))'\n"
        "found = failure(sys.executable, '-c', code)\n"
        "print(found.code, found.reason, found.message)\n"
    )
    try:
        words = f"echo $$ >{group}/cgroup.procs; exec {sys.executable} {script}"
        done = subprocess.run(
            ["bash", "-c", words],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            check=False,
        )
    finally:
        remove(group)
    assert done.stdout.startswith("137 host-out-of-memory cgroup: oom_kill 1 ("), done


def test_the_script_of_a_node_writes_what_its_cgroup_counts_and_where_errors_go(tmp_path):
    shown = "import os; print(os.environ['TORCHELASTIC_ERROR_FILE'], flush=True)"
    code = f"{shown}\nx = []\nwhile True: x.append(bytearray(8 << 20))"
    plan = LaunchPlan(nodes=(NodePlan(rank=0, argv=(sys.executable, "-c", code)),), output_dir="out")
    place = Place(id="tiny-1", folder=str(tmp_path / "out"), launch_dir=str(tmp_path))
    for file in node_files(plan, place):
        Path(file.path).parent.mkdir(parents=True, exist_ok=True)
        Path(file.path).write_text(file.content)
    group = cgroup()
    try:
        words = f"echo $$ >{group}/cgroup.procs; exec bash out/run/node.sh"
        env = {**os.environ, "NODE_RANK": "0", "ATTEMPT": "2"}
        done = subprocess.run(["bash", "-c", words], capture_output=True, text=True, env=env, check=False)
    finally:
        remove(group)
    assert done.returncode == 137
    assert done.stdout == f"{tmp_path}/out/logs/ranks/node0/agent.2.json\n"
    assert (tmp_path / "out/run/exits/2.0").read_text().startswith("137 ")
    assert (tmp_path / "out/run/causes/2.0").read_text().startswith("cgroup: oom_kill 1 (/sys/fs/cgroup/memory/")


# -- torchrun, and ranks of which one fails
WORKER = """
import os, sys, time
import torch.distributed as dist
{record}
def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    print(f"rank {{rank}} is ready", flush=True)
    dist.barrier()
    if rank == {rank}:
        {action}
    dist.barrier()
    time.sleep(5)
main()
"""
RECORD = "from torch.distributed.elastic.multiprocessing.errors import record\n@record"
WORKERS = {
    "raises": ("raise FileNotFoundError(2, 'No such file or directory', 'x.idx')", "", 2, "missing-file"),
    "raises, recorded": ("raise KeyError('layers')", RECORD, 1, "exception"),
    "is killed": ("os.kill(os.getpid(), 9)", "", 2, "killed"),
    "has a segmentation fault": ("os.kill(os.getpid(), 11)", "", 1, "segmentation-fault"),
    "leaves without a word": ("os._exit(7)", "", 1, ""),
    "the first one raises": ("raise AssertionError('heads')", "", 0, "assertion"),
}


def torchrun(tmp_path: Path, text: str, *options: str, ranks: int = 3) -> Failure:
    script = tmp_path / "worker.py"
    script.write_text(text)
    words = (sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}")
    return failure(*words, *options, str(script), devices=ranks)


@pytest.mark.slow
@pytest.mark.parametrize("name", WORKERS)
def test_torchrun_with_a_rank_that_fails(name, tmp_path):
    action, record, rank, reason = WORKERS[name]
    found = torchrun(tmp_path, WORKER.format(action=action, record=record, rank=rank))
    assert (found.rank, found.reason, found.code) == (rank, reason, 1), found
    assert Path(found.evidence.rpartition(":")[0]).is_file()


@pytest.mark.slow
def test_torchrun_with_one_rank_writes_its_error_file(tmp_path):
    action = "print('x' * 10); sys.stderr = open(os.devnull, 'w'); raise PermissionError('data')"
    found = torchrun(tmp_path, WORKER.format(action=action, record=RECORD, rank=0), ranks=1)
    assert (found.rank, found.reason) == (0, "permission")


@pytest.mark.slow
def test_the_agent_itself_fails(tmp_path):
    script = tmp_path / "worker.py"
    script.write_text("")
    words = (sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--node-rank=1", "--master-addr=127.0.0.1")
    options = ("--master-port=1", "--nproc-per-node=2", "--rdzv-conf=timeout=2,read_timeout=2")
    found = failure(*words, *options, str(script), devices=2)
    assert found.reason == "no-rendezvous", found
