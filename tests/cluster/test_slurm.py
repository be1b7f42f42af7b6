"""Jobs through a real Slurm without accounting: submitted, seen, ended, started again, and refused in its own words."""

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.cluster.machines import Site, lacking
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.sample(keep=10, of="cluster"),
    pytest.mark.slow,
    pytest.mark.skipif(bool(lacking(slurm=True)), reason=lacking(slurm=True) or "-"),
]

STUB = Path(__file__).parent / "stub"


def status(site: Site, run: str = "qwen3_8b-1") -> dict[str, object]:
    return site.launch("status", run, "--json").json  # type: ignore[no-any-return]


def job_of(site: Site) -> str:
    return str(json.loads((site.folder / "out/run/run.json").read_text())["handle"]["job"])


def test_a_job_is_submitted_seen_and_waited_for(site: Site):
    site.program('echo "devices $CUDA_VISIBLE_DEVICES"; step 1; sleep 3; step 2')
    args = [arg for arg in site.args("slurm", 3) if arg != "cluster.gres=''"]
    submitted = site.launch("run", *args, "cluster.gres=gpu:2", "cluster.time_limit=10", "--json")
    assert submitted.code == 0, submitted
    assert submitted.json["id"] == "qwen3_8b-1"
    wait_until(lambda: status(site)["state"] == "running")
    followed = site.launch("logs", "qwen3_8b-1", "-f", "--grep", "iteration|devices")
    assert sorted(set(followed.out.splitlines())) == sorted(
        f"node{node}: {line}"
        for node in range(3)
        for line in ("devices 0,1", "{'loss': 1.0, 'iteration': '1/10'}", "{'loss': 1.0, 'iteration': '2/10'}")
    )
    shown = status(site)
    assert (shown["state"], shown["code"], shown["machines"]) == ("done", 0, ["n1", "n2", "n3"])
    assert "master n1:" in site.log(2)
    assert not site.left()


def test_signs_in_a_folder_are_no_pattern_of_slurm(site: Site):
    site.program("step 1")
    args = [arg for arg in site.args("slurm") if not arg.startswith("output_dir=")]
    done = site.launch("run", *args, 'output_dir="100%j it\'s $(x)"', "--wait", "--json")
    assert (done.code, done.json["state"]) == (0, "done"), done
    logs = site.folder / "100%j it's $(x)" / "logs"
    assert sorted(path.name for path in logs.glob("*.log")) == ["node0.log", "node1.log", "slurm.log"]
    assert "'iteration': '1/10'" in (logs / "node1.log").read_text()


def test_the_first_failure_is_the_exit_code(site: Site):
    site.program('[ "$NODE_RANK" = 0 ] || { sleep 1; echo "FileNotFoundError: /data/x.bin"; exit 7; }; sleep 3000')
    done = site.launch("run", *site.args("slurm"), "--wait", "--json")
    assert (done.code, done.json["exit_code"], done.json["state"]) == (1, 7, "failed")
    assert done.json["failure"]["reason"] == "missing-file"
    assert done.json["failure"]["host"] == "n2"
    assert not site.left()


def test_a_waiting_job_says_why_and_can_be_stopped(site: Site):
    site.program("step 1")
    done = site.launch("run", *site.args("slurm"), 'cluster.sbatch_options=["--begin=now+1hour"]')
    assert done.code == 0, done
    shown = status(site)
    assert (shown["state"], shown["why"]) == ("queued", "Slurm: PENDING BeginTime")
    assert site.launch("stop", "qwen3_8b-1").code == 0
    assert status(site)["state"] == "stopped"
    assert site.launch("stop", "qwen3_8b-1").code == 1


@pytest.mark.parametrize("by", ["launch", "scancel"])
def test_a_stopped_job_gives_ranks_time_to_save(site: Site, by: str):
    site.program("trap 'sleep 1; touch saved.$NODE_RANK; exit 0' TERM; step 1; while :; do sleep 0.2; done")
    assert site.launch("run", *site.args("slurm")).code == 0
    wait_until(lambda: "iteration" in site.log(0) and "iteration" in site.log(1))
    if by == "launch":
        stopped = site.launch("stop", "qwen3_8b-1")
        assert stopped.code == 0, stopped
    else:
        site.machines.slurm("scancel", job_of(site))
    wait_until(lambda: status(site)["state"] == "stopped")
    assert {path.name for path in site.folder.glob("saved.*")} == {"saved.0", "saved.1"}
    wait_until(lambda: not site.left(), site.left)


RESUMES = """step 1
if [ -z "$load" ]; then
  [ "$NODE_RANK" != 0 ] || checkpoint 5
  step 6
  sleep 1
  FAIL
fi
[ -s "$load/latest_checkpointed_iteration.txt" ] || exit 9
step 10"""


def test_a_failed_job_starts_again_from_its_last_checkpoint(site: Site):
    site.program(RESUMES.replace("FAIL", 'if [ "$NODE_RANK" = 1 ]; then exit 3; fi; sleep 3000'))
    done = site.launch("run", *site.args("slurm"), "fault_tolerance.max_restarts=1", "--wait")
    assert done.code == 0, (done, site.log(0), site.log(1))
    assert "load=" + str(site.folder / "out/checkpoints/v0/checkpoint-5") in site.log(1)
    assert status(site)["restarts"] == 1


def test_a_job_is_requeued_when_a_node_dies_and_goes_on_elsewhere(site: Site):
    site.program(RESUMES.replace("FAIL", "sleep 3000"))
    assert site.launch("run", *site.args("slurm")).code == 0
    wait_until(lambda: "6/10" in site.log(0) and "6/10" in site.log(1))
    (second,) = [name for name in status(site)["machines"] if name != "n1"]  # type: ignore[union-attr]
    try:
        # The node is gone with all it ran; what is left when its parents are dead may be gone already.
        gone = [site.machines.kill(second, text) for text in ("run/node.sh", "slurm", "bin/megatron", "sleep 3000")]
        assert all(gone[:2])
        wait_until(lambda: status(site)["state"] == "queued", lambda: status(site))
        site.machines.slurm("scontrol", "update", f"JobId={job_of(site)}", "StartTime=now")
        wait_until(lambda: status(site)["state"] == "done", lambda: status(site))
        assert second not in status(site)["machines"]  # type: ignore[operator]
        assert "10/10" in site.log(0)
    finally:
        site.machines.call("slurmd", second)
        wait_until(
            lambda: site.machines.slurm("sinfo", "-h", "-N", "-p", "debug", "-o", "%t").split() == ["idle"] * 3,
            lambda: site.machines.slurm("sinfo", "-h", "-N", "-o", "%N %T %E"),
        )


def test_a_hang_is_ended(site: Site):
    site.program('step 1; sleep 1; step 2; [ "$ATTEMPT" = 1 ] || sleep 3050')
    args = ("fault_tolerance.hang_minutes=0.05", "fault_tolerance.max_restarts=1", "--wait")
    done = site.launch("run", *site.args("slurm"), *args)
    assert done.code == 0, done
    assert "no new iteration for" in (site.folder / "out/logs/slurm.log").read_text()


REFUSED = {
    "partition": ("cluster.partition=nosuch", "invalid partition specified: nosuch"),
    "nodes": ("cluster.nodes=12", "Requested node configuration is not available"),
    "option": ('cluster.sbatch_options=["--no-such-option"]', "unrecognized option"),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED.keys())
def test_slurms_own_refusal_is_passed_on_and_nothing_is_written(site: Site, case: tuple[str, str]):
    arg, message = case
    site.program("step 1")
    done = site.launch("run", *site.args("slurm"), arg)
    assert done.code == 1, done
    assert message in done.err
    assert not (site.folder / "out").exists()
    assert site.machines.slurm("squeue", "-h") == ""
    assert site.launch("ps", "--json").json == []


def test_a_container_gets_the_files_and_what_the_launcher_sets(site: Site):
    """A stand-in for srun with Pyxis, whose image sets variables of its own, starts the tasks by the real srun."""
    site.program('echo "port $MASTER_PORT home $HF_HOME"; step 1')
    environ = {"PATH": f"{STUB}:{site.environ['PATH']}", "SRUN_SEEN": f"{site.folder}/seen", "HF_HOME": "/mine"}
    args = [*site.args("slurm"), "cluster.container=reg#img:1", "cluster.container_mounts=[/usr:/usr:ro]"]
    done = site.launch("run", *args, "--wait", env=environ)
    assert done.code == 0, (done, site.log(0))
    seen = json.loads((site.folder / "seen").read_text())
    assert seen["--container-image"] == "reg#img:1"
    assert seen["--container-mounts"] == f"{site.folder}:{site.folder},/usr:/usr:ro"
    assert "home /mine" in site.log(1)
    assert "port 1 " not in site.log(1)
    assert {"MASTER_ADDR", "MASTER_PORT", "ATTEMPT", "HF_HOME"} <= set(seen["--container-env"].split(","))


def test_a_container_without_the_plug_in_is_refused(site: Site):
    site.program("step 1")
    done = site.launch("run", *site.args("slurm"), "cluster.container=img")
    assert done.code == 1, done
    assert "srun here has no --container-image" in done.err
    assert not (site.folder / "out").exists()


def test_a_taken_port_is_avoided(site: Site):
    site.program("step 1")
    listen = (
        "import socket,time\nheld=[socket.create_server(('', p)) for p in range(20000, 20200)]\nprint(1, flush=True)"
    )
    with site.machines.holding("n1", listen + "\ntime.sleep(100)"):
        done = site.launch("run", *site.args("slurm"), "--wait")
        assert done.code == 0, done
    port = int(site.log(0).partition(", load")[0].rpartition(":")[2])
    assert port >= 20200


@pytest.mark.parametrize("launcher", ["", "hydra/launcher=submitit_slurm"], ids=["own", "submitit"])
def test_a_sweep_is_one_array(site: Site, launcher: str):
    if launcher:
        pytest.importorskip("submitit")
    site.program('echo "lr $*" | grep -o "learning_rate [^ ]*\\|--lr [^ ]*"; step 1')
    args = [arg for arg in site.args("slurm") if not arg.startswith("output_dir")]
    more = [launcher, "hydra.launcher.array_parallelism=2"] if launcher else ["cluster.array_limit=2"]
    done = site.launch("run", "-m", *args, "optimizer.lr=choice(1e-4,2e-4,3e-4)", *more, "--json")
    assert done.code == 0, done
    jobs = [tree["handle"]["job"] for tree in done.json]
    assert len({job.partition("_")[0] for job in jobs}) == 1
    assert [job.partition("_")[2] for job in jobs] == ["0", "1", "2"]
    wait_until(lambda: all(row["state"] == "done" for row in site.launch("ps", "--json").json))
    rates = [(Path(tree["output_dir"]) / "logs" / "node0.log").read_text() for tree in done.json]
    assert len(set(rates)) == 3
    assert all((Path(tree["output_dir"]) / "logs" / "node1.log").exists() for tree in done.json)


def test_one_job_of_a_sweep_is_stopped_and_the_others_go_on(site: Site):
    pytest.importorskip("submitit")
    site.program("trap 'sleep 1; touch saved.$RANDOM; exit 0' TERM; step 1; for _ in $(seq 40); do sleep 0.2; done")
    args = [arg for arg in site.args("slurm", 1) if not arg.startswith("output_dir")]
    done = site.launch("run", "-m", *args, "optimizer.lr=1e-4,2e-4", "hydra/launcher=submitit_slurm", "--json")
    assert done.code == 0, done
    first, second = (tree["id"] for tree in done.json)
    log = Path(done.json[0]["output_dir"]) / "logs" / "node0.log"
    wait_until(lambda: log.exists() and "iteration" in log.read_text())
    assert site.launch("stop", first).code == 0
    wait_until(lambda: status(site, first)["state"] == "stopped")
    assert list(site.folder.glob("saved.*")), "ranks had their time to save"
    wait_until(lambda: status(site, second)["state"] == "done")
    wait_until(lambda: not site.left(), site.left)


def test_a_sweep_that_submitit_cannot_submit_leaves_nothing(site: Site):
    pytest.importorskip("submitit")
    site.program("step 1")
    args = [*site.args("slurm"), "optimizer.lr=1e-4,2e-4", "hydra/launcher=submitit_slurm"]
    done = site.launch("run", "-m", *args, "hydra.launcher.array_parallelism=1", "hydra.launcher.wckey=x")
    assert done.code == 2
    assert "hydra.launcher.wckey" in done.err
    short = site.launch("run", "-m", *args, 'cluster.sbatch_options=["-x n3"]')
    assert short.code == 1, short
    assert "long options only" in short.err
    assert not (site.folder / "out").exists()
    assert site.launch("ps", "--json").json == []


def unreachable(site: Site) -> dict[str, str]:
    """Return the environment in which nobody answers for Slurm."""
    text = (site.machines.root / "slurm.conf").read_text()
    conf = site.folder / "dead.conf"
    conf.write_text("\n".join("SlurmctldPort=1" if "SlurmctldPort" in line else line for line in text.splitlines()))
    return {"SLURM_CONF": str(conf)}


def test_a_forgotten_job_is_identified_by_its_directory(site: Site):
    site.program("step 1")
    assert site.launch("run", *site.args("slurm"), "--wait").code == 0
    shown = site.launch("status", "out", "--json", env=unreachable(site))
    assert shown.json["state"] == "done"


def test_a_controller_that_does_not_answer_ends_no_job(site: Site):
    site.program("step 1; while [ ! -e go ]; do sleep 0.2; done")
    assert site.launch("run", *site.args("slurm")).code == 0
    wait_until(lambda: status(site)["state"] == "running")
    shown = site.launch("status", "out", "--json", env=unreachable(site))
    assert shown.json["state"] == "running"
    assert "last known state; Slurm cannot be queried" in shown.json["why"]
    (row,) = site.launch("ps", "--json", env=unreachable(site)).json
    assert row["state"] == "running"
    (site.folder / "go").touch()
    wait_until(lambda: status(site)["state"] == "done")


def test_the_time_limit_is_the_reason_although_ranks_were_told_to_stop(site: Site):
    site.program("trap 'exit 0' TERM; step 1; while :; do sleep 0.2; done")
    assert site.launch("run", *site.args("slurm"), "cluster.time_limit=1").code == 0
    wait_until(lambda: status(site)["state"] in ("failed", "stopped"), lambda: status(site))
    shown = status(site)
    assert (shown["state"], str(shown["why"]).split()[:2]) == ("failed", ["Slurm:", "TIMEOUT"])


def test_an_end_that_only_the_queue_saw_is_written_down(site: Site):
    site.program("step 1; while :; do sleep 0.2; done")
    assert site.launch("run", *site.args("slurm")).code == 0
    wait_until(lambda: "iteration" in site.log(0) and "iteration" in site.log(1))
    # Nothing is left that could write how it ended: the batch script and all tasks are killed at once.
    site.machines.slurm("scancel", "--signal=KILL", "--full", job_of(site))
    wait_until(lambda: status(site)["state"] != "running")
    ended = status(site)
    assert ended["state"] in ("failed", "stopped")
    kept = json.loads((site.folder / "out/run/status.json").read_text())
    assert (kept["state"], kept["reason"]) == (ended["state"], ended["why"])


def test_a_job_whose_folder_is_gone_is_cancelled_by_its_id(site: Site):
    site.program("step 1; while :; do sleep 0.2; done")
    assert site.launch("run", *site.args("slurm")).code == 0
    wait_until(lambda: "iteration" in site.log(0))
    shutil.rmtree(site.folder / "out", ignore_errors=True)
    shutil.rmtree(site.folder / "out", ignore_errors=True)
    assert [row["state"] for row in site.launch("ps", "--json").json] == ["running"]
    stopped = site.launch("stop", "qwen3_8b-1")
    assert stopped.code == 0, stopped
    wait_until(lambda: not site.left(), site.left)


def logged(site: Site, *names: str) -> dict[str, str]:
    """Return the environment in which calls of Slurm's commands are logged, and then done."""
    folder = site.folder / "logged"
    folder.mkdir(exist_ok=True)
    for name in names:
        text = f'#!/bin/sh\necho "{name} $*" >>{site.folder}/calls\nexec {shutil.which(name)} "$@"\n'
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def test_a_sweep_is_seen_by_one_query_and_stopped_by_one_command(site: Site):
    site.program("step 1; while :; do sleep 0.2; done")
    args = [*site.args("slurm"), "optimizer.lr=1e-4,2e-4,3e-4", "cluster.array_limit=1"]
    assert site.launch("run", "-m", *args).code == 0
    wait_until(lambda: "iteration" in site.log_of("out/1"))
    env = logged(site, "squeue", "scontrol", "sacct", "scancel")
    rows = site.launch("ps", "--json", env=env).json
    assert [(row["state"], row["sweep"]) for row in rows] == [
        *(("running", "qwen3_8b-1"), ("queued", "qwen3_8b-1"), ("queued", "qwen3_8b-1")),
    ]
    calls = site.folder / "calls"
    assert [line.split()[0] for line in calls.read_text().splitlines()] == ["squeue"]
    calls.unlink()
    stopped = site.launch("stop", "qwen3_8b-2", "--sweep", "--json", env=env)
    assert stopped.code == 0, stopped
    assert {row["state"] for row in stopped.json} == {"stopped"}
    assert len(stopped.json) == 3
    assert sum(line.startswith("scancel") for line in calls.read_text().splitlines()) == 1
    assert not (site.folder / "out/2/logs/node0.log").exists()
    wait_until(lambda: not site.left(), site.left)


def test_of_jobs_that_the_queue_has_forgotten_the_others_are_still_seen(site: Site):
    site.program("step 1; while :; do sleep 0.2; done")
    for number in (1, 2):
        args = [arg for arg in site.args("slurm", 1) if not arg.startswith("output_dir=")]
        assert site.launch("run", *args, f"output_dir=out{number}").code == 0
    path = site.folder / "out1/run/run.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "handle": {"job": "999999"}}))
    wait_until(lambda: "iteration" in site.log_of("out2"))
    states = {row["id"]: row["state"] for row in site.launch("ps", "--json").json}
    assert states == {"qwen3_8b-1": "running", "qwen3_8b-2": "running"} or states["qwen3_8b-1"] == "lost"
    assert states["qwen3_8b-2"] == "running"


def test_a_failed_job_is_resumed_as_a_job_of_the_same_run(site: Site):
    site.program(RESUMES.replace("FAIL", 'if [ "$NODE_RANK" = 1 ]; then exit 3; fi; sleep 3000'))
    assert site.launch("run", *site.args("slurm"), "--wait").code == 1
    first = job_of(site)
    (site.folder / "elsewhere").mkdir()
    done = site.launch("resume", "qwen3_8b-1", "--wait", "--json")
    assert (done.code, done.json["state"], done.json["attempt"]) == (0, "done", 1), (done, site.log(1))
    assert job_of(site) != first
    assert "load=" + str(site.folder / "out/checkpoints/v0/checkpoint-5") in site.log(1)
    assert [(row["id"], row["state"]) for row in site.launch("ps", "--json").json] == [("qwen3_8b-1", "done")]
    assert not site.left()


def test_a_stopped_job_is_resumed_and_not_while_it_runs(site: Site):
    site.program(RESUMES.replace("FAIL", "sleep 3000"))
    assert site.launch("run", *site.args("slurm")).code == 0
    wait_until(lambda: "6/10" in site.log(0) and "6/10" in site.log(1))
    refused = site.launch("resume", "qwen3_8b-1")
    assert (refused.code, "is running" in refused.err) == (1, True)
    assert site.launch("stop", "qwen3_8b-1").code == 0
    path = site.folder / "out/run/plan.json"
    plan = path.read_text()
    path.write_text(plan.replace('"--nodes=2"', '"--nodes=2", "--partition=absent"'))
    assert "Slurm refuses the job" in site.launch("resume", "qwen3_8b-1").err
    assert status(site)["state"] == "stopped"
    path.write_text(plan)
    assert site.launch("resume", "qwen3_8b-1").code == 0
    assert status(site)["state"] in ("queued", "running", "done")
    wait_until(lambda: status(site)["state"] == "done")
