"""Jobs over ssh, on machines of their own: files are copied, processes end, and a refused job starts nothing."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cluster.machines import Site
from tests.waiting import STUCK_SECONDS, wait_until

pytestmark = [pytest.mark.sample(keep=10, of="cluster"), pytest.mark.slow]


def run_id(site: Site) -> str:
    return str(json.loads((site.folder / "out/run/run.json").read_text())["id"])


def status(site: Site) -> dict[str, object]:
    return json.loads((site.folder / "out/run/status.json").read_text())


def test_every_node_gets_its_rank_and_one_free_port(site: Site):
    site.program('echo "at $SITE"; step 1')
    done = site.launch("run", *site.args("ssh", 3), 'cluster.setup=["export SITE=here"]')
    assert done.code == 0, done
    lines = [line for line in done.out.splitlines() if "rank" in line and "master" in line]
    assert {line.partition(", load")[0].rpartition(":")[0] for line in lines} == {
        f"n{rank + 1}: rank {rank} of 3 on n{rank + 1}, master n1" for rank in range(3)
    }
    assert len({line.rpartition(", load")[0].rpartition(":")[2] for line in lines}) == 1
    assert site.log(2).startswith("rank 2 of 3")
    assert "at here" in site.log(2)
    (row,) = site.launch("ps", "--json").json
    assert (row["id"], row["state"], row["nodes"]) == ("qwen3_8b-1", "done", 3)
    shown = site.launch("status", "qwen3_8b-1", "--json").json
    assert [end["code"] for end in shown["exits"]] == [0, 0, 0]
    assert {end["host"] for end in shown["exits"]} == {"n1", "n2", "n3"}
    assert not site.left()


def test_the_first_failure_ends_all_and_is_reported(site: Site):
    body = """if [ "$NODE_RANK" = 1 ]; then
  sleep 1; echo "torch.OutOfMemoryError: CUDA out of memory. Tried 2 GiB"; exit 7
fi
sleep 3000"""
    site.program(body)
    done = site.launch("run", *site.args("ssh"), "--json")
    assert done.code == 1
    assert done.json["exit_code"] == 7
    failure = done.json["failure"]
    assert (failure["node"], failure["host"], failure["reason"]) == (1, "n2", "device-out-of-memory")
    assert "batch.micro_batch_size (smaller)" in failure["fields"]
    assert not site.left()
    text = site.launch("status", run_id(site)).out
    # No torchrun: a line without the number of a rank is only known to be of its node.
    assert "failed first: node 1 (n2), exit code 7: a device ran out of memory" in text


def test_a_killed_rank_ends_the_job(site: Site):
    site.program("sleep 3010 & child=$!; step 1; wait $child")
    process = site.start("run", *site.args("ssh"))
    wait_until(lambda: "iteration" in site.log(1))
    assert site.machines.kill("n2", "sleep 3010")
    process.wait(timeout=STUCK_SECONDS)
    assert process.returncode == 1
    assert status(site)["code"] == 137
    assert not site.left()


def test_a_lost_connection_ends_the_job_on_both_sides(site: Site):
    site.program("step 1; sleep 3020")
    process = site.start("run", *site.args("ssh"))
    wait_until(lambda: "iteration" in site.log(0) and "iteration" in site.log(1))
    try:
        assert site.machines.kill("n2", "sshd")
        out, _ = process.communicate(timeout=STUCK_SECONDS)
        assert process.returncode == 1
        assert "n2: launch: the connection is lost" in out
        assert status(site)["code"] == 255
        wait_until(lambda: not site.left(), site.left)
    finally:
        site.machines.call("sshd", "n2")


@pytest.mark.parametrize("victim", ["launcher", "start.sh"])
def test_nothing_is_left_when_the_local_side_is_killed(site: Site, victim: str):
    site.program("step 1; sleep 3030")
    process = site.start("run", *site.args("ssh"))
    wait_until(lambda: "iteration" in site.log(0) and "iteration" in site.log(1))
    if victim == "launcher":
        process.kill()
    else:
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                line = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if line[:2] == [b"bash", f"{site.folder}/out/run/start.sh".encode()]:
                os.kill(int(entry.name), signal.SIGKILL)
    wait_until(lambda: not site.left(), site.left)
    process.wait(timeout=STUCK_SECONDS)
    expected = {
        "launcher": ("stopped", "the program that started it was killed"),
        "start.sh": ("failed", "the script that starts its nodes was killed"),
    }[victim]
    wait_until(lambda: (status(site)["state"], status(site)["reason"]) == expected, lambda: status(site))


def test_processes_that_a_killed_node_left_are_cleaned_up(site: Site):
    site.program("step 1; sleep 3060")
    process = site.start("run", *site.args("ssh"))
    wait_until(lambda: "iteration" in site.log(0) and "iteration" in site.log(1))
    for name in ("watchdog", "run/node.sh", "sshd"):
        assert site.machines.kill("n2", name)
    site.machines.call("sshd", "n2")
    process.wait(timeout=STUCK_SECONDS)
    assert process.returncode != 0
    assert site.left(), "nobody is there who ends what the killed script had started"
    cleaned = site.launch("clean", run_id(site), "--json")
    assert cleaned.code == 0, cleaned
    # The machines of the test share their process numbers: whichever is asked first ends them.
    assert {text.rpartition(" on ")[2] for text in cleaned.json["removed"]} <= {"n1", "n2"}
    assert cleaned.json["removed"]
    wait_until(lambda: not site.left(), site.left)
    assert site.launch("clean", run_id(site), "--json").json["removed"] == []
    with site.machines.holding("n2", "import time; print(1, flush=True); time.sleep(307)"):
        assert site.launch("clean", run_id(site)).code == 0
        assert any("sleep(307)" in text for _, text in site.machines.processes("n2")), "others' processes go on"
    site.machines.kill("n1", "sshd")
    try:
        unanswered = site.launch("clean", run_id(site))
        assert (unanswered.code, "n1: " in unanswered.err) == (1, True)
    finally:
        site.machines.call("sshd", "n1")


def test_ctrl_c_gives_ranks_time_to_save(site: Site):
    body = "trap 'sleep 1; touch saved.$NODE_RANK; exit 0' TERM; step 1; while :; do sleep 0.2; done"
    site.program(body)
    process = site.start("run", *site.args("ssh"))
    wait_until(lambda: "iteration" in site.log(0) and "iteration" in site.log(1))
    process.send_signal(signal.SIGINT)
    process.wait(timeout=STUCK_SECONDS)
    assert process.returncode == 130
    assert (site.folder / "saved.0").exists()
    assert (site.folder / "saved.1").exists()
    assert status(site)["state"] == "stopped"
    assert not site.left()


def test_a_run_is_stopped_by_its_id_from_elsewhere(site: Site):
    site.program("step 1; sleep 3040")
    process = site.start("run", *site.args("ssh"))
    wait_until(lambda: "iteration" in site.log(0) and "iteration" in site.log(1))
    stopped = site.launch("stop", run_id(site))
    assert stopped.code == 0, stopped
    assert "stopped" in stopped.out
    process.wait(timeout=STUCK_SECONDS)
    assert not site.left()
    again = site.launch("stop", run_id(site))
    assert again.code == 1
    assert "has ended: stopped" in again.err


HOLD = """
import socket, sys, time
held = [socket.create_server(("", int(port))) for port in sys.argv[1:]]
print("held", flush=True)
time.sleep(120)
"""


def test_a_taken_port_is_avoided_and_a_demanded_one_is_refused(site: Site):
    site.program("step 1")
    args = site.args("ssh")
    assert site.launch("run", *args).code == 0
    port = int(site.log(0).partition(", load")[0].rpartition(":")[2])
    with site.machines.holding("n1", HOLD, *(str(number) for number in range(port, port + 5))):
        refused = site.launch("run", *args, "output_dir=out2", f"cluster.master_port={port}")
        assert refused.code == 1
        assert f"n1: port {port} is in use" in refused.err
        assert not (site.folder / "out2").exists()
        assert [row["id"] for row in site.launch("ps", "--json").json] == ["qwen3_8b-1"]
        # The same id again asks for the same port first.
        (site.folder / "out").rename(site.folder / "before")
        (Path(f"{site.folder}.launch") / "runs" / "qwen3_8b-1.json").unlink()
        assert site.launch("run", *args).code == 0
        assert f"master n1:{port + 5}" in site.log(1)
    done = site.launch("run", *args, "output_dir=out2", f"cluster.master_port={port}")
    assert done.code == 0, done
    assert f"n2: rank 1 of 2 on n2, master n1:{port}" in done.out


def test_a_failed_job_starts_again_from_its_last_checkpoint(site: Site):
    body = """step 1
if [ -z "$load" ]; then
  sleep 0.5; [ "$NODE_RANK" != 0 ] || { checkpoint 5; step 6; exit 3; }
  sleep 3000
fi
[ -s "$load/latest_checkpointed_iteration.txt" ] && [ -d "$load" ] || exit 9
step 10"""
    site.program(body)
    done = site.launch("run", *site.args("ssh"), "fault_tolerance.max_restarts=1", "--json")
    assert done.code == 0, (done, site.log(0), site.log(1))
    save = f"{site.folder}/out/checkpoints/v0/checkpoint-5"
    assert f"load={save}" in site.log(0)
    assert f"load={save}" in site.log(1)
    assert status(site)["restarts"] == 1
    shown = site.launch("status", run_id(site), "--json").json
    assert [(end["attempt"], end["node"], end["code"]) for end in shown["exits"]][:1] == [(0, 0, 3)]


def test_a_hang_is_seen_in_the_log_of_iterations_and_ended(site: Site):
    body = """step 1; sleep 1; step 2
[ "$ATTEMPT" = 1 ] || sleep 3050"""
    site.program(body)
    args = ("fault_tolerance.hang_minutes=0.05", "fault_tolerance.max_restarts=1")
    done = site.launch("run", *site.args("ssh"), *args)
    assert done.code == 0, done
    assert "no new iteration for" in done.out
    assert "restart 1 of 1" in done.out
    assert not site.left()


def test_secrets_reach_the_nodes_and_no_file_or_command_line(site: Site):
    site.program('echo "token of ${#HF_TOKEN} letters"; sleep 2')
    secret = "hf_do_not_write_me_down"
    process = site.start("run", *site.args("ssh"))
    process.kill()
    process.communicate()
    wait_until(lambda: not site.left(), site.left)
    args = [arg.replace("output_dir=out", "output_dir=out2") for arg in site.args("ssh")]
    done = site.launch("run", *args, env={"HF_TOKEN": secret})
    assert done.code == 0, done
    assert f"n2: token of {len(secret)} letters" in done.out
    for file in (site.folder / "out2").rglob("*"):
        assert not file.is_file() or secret not in file.read_text(errors="replace"), file


REFUSED = {
    "unreachable": (["cluster.hosts=[n1,n9]"], 1, "n9: cannot be reached"),
    "twice": (["cluster.hosts=[n1,n1]"], 2, "n1 is listed twice"),
    "too few": (["cluster.hosts=[n1]", "cluster.nodes=2"], 1, "the job has 2 nodes and cluster.hosts names 1 (n1)"),
    "none": (["cluster.hosts=[]", "cluster.nodes=2"], 1, "no hosts are named"),
    "an option": (["cluster.hosts=[-oProxyCommand]"], 2, "is not a host name"),
    "no file": (["cluster.hosts=[]", "cluster.host_file=/none/hosts"], 2, "/none/hosts: No such file"),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_work_is_refused_before_anything_starts(site: Site, case: tuple[list[str], int, str]):
    more, code, message = case
    site.program("step 1")
    done = site.launch("run", *site.args("ssh"), *more)
    assert done.code == code, done
    assert message in done.err
    assert not (site.folder / "out").exists()
    assert site.launch("ps", "--json").json == []


def test_a_host_file_is_read_and_duplicates_are_refused_with_their_place(site: Site):
    site.program("step 1")
    (site.folder / "hosts").write_text("# ours\nn1 slots=8\n\nn2 slots=8\n")
    args = [arg for arg in site.args("ssh") if not arg.startswith("cluster.hosts")]
    done = site.launch("run", *args, "cluster.host_file=hosts")
    assert done.code == 0, done
    assert "n2: rank 1 of 2" in done.out
    (site.folder / "hosts").write_text("n1 slots=4\nn2\n")
    refused = site.launch("run", *args, "cluster.host_file=hosts", "output_dir=out2")
    assert refused.code == 2
    assert "slots=4, but cluster.devices_per_node=8" in refused.err
    assert "hosts:1" in refused.err


def test_a_second_job_in_the_same_folder_is_refused_and_the_first_is_not_harmed(site: Site):
    site.program("step 1; sleep 4; step 2")
    process = site.start("run", *site.args("ssh"))
    wait_until(lambda: "iteration" in site.log(0))
    refused = site.launch("run", *site.args("ssh"))
    assert refused.code == 1
    assert "qwen3_8b-1" in refused.err
    assert process.wait(timeout=STUCK_SECONDS) == 0
    assert status(site)["state"] == "done"


def test_a_failed_run_is_resumed_on_its_hosts(site: Site):
    site.program("""step 1
[ -z "$load" ] || { [ -s "$load/latest_checkpointed_iteration.txt" ] || exit 9; step 10; exit 0; }
[ "$NODE_RANK" != 0 ] || checkpoint 5
sleep 1
exit 3""")
    assert site.launch("run", *site.args("ssh")).code == 1
    done = site.launch("resume", "qwen3_8b-1")
    assert done.code == 0, (done, site.log(0))
    assert "load=" + str(site.folder / "out/checkpoints/v0/checkpoint-5") in site.log(1)
    assert site.launch("status", "qwen3_8b-1", "--json").json["state"] == "done"
    names = sorted(path.name for path in (site.folder / "out/run/exits").glob("[0-9]*"))
    assert names == ["0.0", "0.1", "1.0", "1.1"]
    assert not site.left()


@pytest.mark.parametrize(("fanout", "direct", "through"), [(1, 1, {"n1": 3}), (2, 2, {"n1": 2, "n3": 1})])
def test_more_hosts_than_the_fan_out_are_reached_through_others(
    site: Site, fanout: int, direct: int, through: dict[str, int]
):
    site.program("step 1; until [ -e go ]; do sleep 0.2; done; step 10; echo $TOKEN_OF_SITE")
    words = ["run", *site.args("ssh", 3), f"cluster.ssh_fanout={fanout}", "backend.env.TOKEN_OF_SITE=x'y"]
    process = site.start(*words)
    wait_until(lambda: all("iteration" in site.log(node) for node in range(3)))
    mark = f"{site.folder}/out/run/"
    lines = subprocess.run(["ps", "-ww", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    here = [line for line in lines.splitlines() if line.startswith("ssh ") and mark in line]
    inside = {name: [line for _, line in site.machines.processes(name) if line.startswith("ssh ")] for name in through}
    assert {name: len(found) for name, found in inside.items()} == through
    assert len(here) == direct + sum(through.values())
    (site.folder / "go").touch()
    out, _ = process.communicate(timeout=STUCK_SECONDS)
    assert process.returncode == 0, out
    assert all(f"n{rank + 1}: " in out for rank in range(3))
    assert [site.log(node).count("x'y") for node in range(3)] == [1, 1, 1]
    assert [end["code"] for end in site.launch("status", "out", "--json").json["exits"]] == [0, 0, 0]
    assert not site.left()


@pytest.mark.parametrize(
    ("fault", "state", "reason"),
    [
        ("stop", "stopped", "by "),
        ("launcher", "stopped", "was killed"),
        ("sshd of n3", "failed", ""),
        ("relay", "failed", ""),
    ],
)
def test_nothing_is_left_of_nodes_that_others_reach(site: Site, fault: str, state: str, reason: str):
    site.program("step 1; sleep 3000")
    process = site.start("run", *site.args("ssh", 3), "cluster.ssh_fanout=1")
    wait_until(lambda: all("iteration" in site.log(node) for node in range(3)))
    if fault == "stop":
        assert site.launch("stop", "out").code == 0
    elif fault == "launcher":
        process.kill()
    elif fault == "relay":
        assert site.machines.kill("n1", "run/relay.sh")
    else:
        try:
            assert site.machines.kill("n3", "sshd")
        finally:
            site.machines.call("sshd", "n3")
    process.wait(timeout=STUCK_SECONDS)
    wait_until(lambda: not site.left(), site.left)
    wait_until(lambda: site.launch("status", "out", "--json").json["state"] == state)
    shown = site.launch("status", "out", "--json").json
    assert reason in shown["why"]
    if state == "failed":
        assert shown["failure"]["reason"] == "node-lost"


def test_hosts_that_do_not_reach_each_other_are_refused_with_what_works(site: Site):
    site.program("step 1")
    config = site.machines.root / "ssh_config"
    own = site.folder / "only_here"
    own.write_text(config.read_text().replace("/key", "/key_here"))
    (site.machines.root / "key_here").write_bytes((site.machines.root / "key").read_bytes())
    (site.machines.root / "key_here").chmod(0o600)
    hide = "mount --bind /dev/null " + str(site.machines.root / "key_here")
    site.machines.on("n1", "sh", "-c", hide)
    words = [word for word in site.args("ssh", 3) if "ssh_options" not in word]
    words += [f"cluster.ssh_options=[-F,{own}]", "cluster.ssh_fanout=1"]
    try:
        refused = site.launch("run", *words)
        assert refused.code == 1
        assert "n1 cannot reach n1 n2 n3 by ssh" in refused.err
        assert site.launch("run", *words[:-1], "cluster.ssh_fanout=0").code == 0
    finally:
        site.machines.on("n1", "umount", str(site.machines.root / "key_here"))
