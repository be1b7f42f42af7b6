"""The machines of these tests themselves: clusters beside each other, and what a failed or killed one leaves."""

import os
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.cluster.machines import Machines, lacking, up

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(lacking(slurm=False)), reason=lacking(slurm=False) or "-")]


def left(number: str) -> list[str]:
    """Return links and network namespaces that have a cluster's number."""
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout.splitlines()
    names = [line.split()[1].partition("@")[0].rstrip(":") for line in links]
    names += subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout.split()
    return [name for name in names if name == f"lb{number}" or name.startswith(f"l{number}n")]


def number_of(machines: Machines) -> str:
    return machines.space("n1").name[1:-2]


def test_clusters_that_start_at_once_are_apart_and_leave_nothing(tmp_path: Path) -> None:
    with ThreadPoolExecutor() as pool:
        made = list(pool.map(up, [tmp_path / name for name in "abc"]))
    numbers = {number_of(each) for each in made}
    assert len(numbers) == 3
    assert [each.on("n2", "hostname").strip() for each in made] == ["n2"] * 3
    assert all(left(number) for number in numbers)
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda each: each.call("down"), made))
    assert not [name for number in numbers for name in left(number)]


def test_a_cluster_that_does_not_come_up_is_undone_and_can_be_made_again(tmp_path: Path, monkeypatch) -> None:
    program = tmp_path / "bin" / "ssh-keygen"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\n. "${0%/bin/*}/c/sizes"; echo "number $number" >&2; exit 7\n')
    program.chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
        with pytest.raises(RuntimeError, match="number ") as failed:
            up(tmp_path / "c")
    assert not left(str(failed.value).partition("number ")[2].split()[0])
    made = up(tmp_path / "c")
    made.call("down")


def test_a_machine_whose_holder_died_is_not_taken_for_another_process(tmp_path: Path) -> None:
    made = up(tmp_path / "c")
    number, holder = number_of(made), made.holder("n1")
    os.kill(holder, signal.SIGKILL)
    # As if its number had been given to a process in the network of this one.
    (made.root / "n1.ns").write_text(f"{os.getpid()} 1\n")
    done = made.call("in", "n1", "true", check=False)
    assert (done.returncode, done.stderr) == (1, "n1 is not up\n")
    made.call("down")
    assert not left(number)
