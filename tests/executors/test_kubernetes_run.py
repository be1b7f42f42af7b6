"""Jobs on a cluster behind a stand-in for kubectl, whose pods are processes: from submission to the last line."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.machines import PROGRAM
from tests.commands import ROOT, CommandServer, Finished
from tests.waiting import wait_until

STUB = Path(__file__).parent / "stub"


def lacking() -> str:
    """Return why pods cannot be made here; "" if they can."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return "namespaces need root and util-linux"
    tried = subprocess.run(["unshare", "-m", "-u", "-p", "-f", "true"], capture_output=True, text=True, check=False)
    return tried.stderr.strip()


pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(lacking()), reason=lacking() or "-")]
SECRET = "a-value-that-nobody-may-write"


@dataclass
class Cluster:
    """A folder to launch from, and the stand-in's state."""

    folder: Path
    state: Path
    commands: CommandServer

    def program(self, body: str) -> None:
        """Write what `megatron` does in the pods; functions `step N` and `checkpoint N` are there."""
        program = self.folder / "env" / "bin" / "megatron"
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(PROGRAM + body + "\n")
        program.chmod(0o755)

    def args(self, kind: str = "job", nodes: int = 2) -> list[str]:
        """Return the overrides of a job that runs the program."""
        job = ["+recipe=qwen3_8b", "backend=megatron", "runtime=native", "data.format=messages", "data.paths=[x.jsonl]"]
        by = ["cluster=kubernetes", f"cluster.kind={kind}", "cluster.container=example.invalid/megatron:1"]
        size = [f"cluster.nodes={nodes}", "cluster.devices_per_node=8", "estimate.enforce=false"]
        save = ["batch.global_batch_size=96", "checkpoint.save_interval=5", "output_dir=out"]
        return [*job, *by, *size, *save, f"cluster.python={self.folder}/env/bin/python"]

    def launch(self, *args: str, env: dict[str, str] | None = None, timeout: float = 240) -> Finished:
        """Run `launch WORDS` to its end."""
        (self.folder / "x.jsonl").write_text('{"messages": []}\n' * 200)
        environ = {
            **os.environ,
            "PATH": f"{STUB}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "LAUNCH_HOME": f"{self.folder}.launch",
            "KUBECTL_STUB": str(self.state),
            "OMP_NUM_THREADS": "1",
            **(env or {}),
        }
        return self.commands.run(args, cwd=self.folder, env=environ, timeout=timeout)

    def status(self, run: str = "qwen3_8b-1") -> Any:
        return self.launch("status", run, "--json").json

    def left(self) -> list[str]:
        """Return the objects that are still there."""
        return [str(path.relative_to(self.state)) for path in (self.state / "objects").rglob("*.json")]


@pytest.fixture
def cluster(tmp_path: Path, commands: CommandServer) -> Cluster:
    """A cluster without jobs."""
    state = tmp_path / "cluster"
    (state / "secrets" / "launch-secrets").mkdir(parents=True)
    (tmp_path / "here").mkdir()
    return Cluster(folder=tmp_path / "here", state=state, commands=commands)


@pytest.mark.sample(keep=1)
@pytest.mark.parametrize("kind", ["job", "jobset", "trainjob", "volcano", "pytorchjob"])
def test_a_job_is_submitted_waited_for_and_seen(cluster: Cluster, kind: str):
    (cluster.state / "secrets/launch-secrets/HF_TOKEN").write_text(SECRET)
    cluster.program('step 1; [ "$HF_TOKEN" = ' + SECRET + ' ] && echo "the secret is there"; echo "[rank3] of it"')
    done = cluster.launch("run", *cluster.args(kind), "--wait", env={"HF_TOKEN": SECRET, "WANDB_API_KEY": SECRET})
    assert done.code == 0, done
    assert "node1: {'loss': 1.0, 'iteration': '1/10'}" in done.out
    assert done.out.count("the secret is there") == 2
    shown = cluster.status()
    assert (shown["state"], shown["code"], len(shown["machines"])) == ("done", 0, 2)
    assert [end["code"] for end in shown["exits"]] == [0, 0]
    log = cluster.launch("logs", "qwen3_8b-1", "--rank", "11").out
    assert log == "", "rank 11 is the fourth of node 1, whose lines are marked with its own number"
    assert cluster.launch("logs", "qwen3_8b-1", "--rank", "3").out == "of it\n" * 1
    assert "master " in (cluster.folder / "out/logs/node1.log").read_text()
    written = [path for path in (cluster.folder.parent).rglob("*") if path.is_file()]
    holding = [path for path in written if SECRET.encode() in path.read_bytes() and path.name != "megatron"]
    assert [path.name for path in holding] == ["HF_TOKEN"], "only the cluster's own Secret holds it"


@pytest.mark.sample(keep=1)
@pytest.mark.parametrize("kind", ["job", "jobset", "trainjob", "volcano", "pytorchjob"])
def test_what_an_ended_job_left_is_cleaned_up(cluster: Cluster, kind: str):
    cluster.program(f"step 1; until [ -e {cluster.folder}/go ]; do sleep 0.2; done; exit 3")
    assert cluster.launch("run", *cluster.args(kind)).code == 0
    left = cluster.left()
    refused = cluster.launch("clean", "qwen3_8b-1")
    assert (refused.code, cluster.left()) == (1, left)
    assert "works: launch stop qwen3_8b-1" in refused.err
    (cluster.folder / "go").touch()
    wait_until(lambda: cluster.status()["state"] == "failed")
    unanswered = cluster.launch("clean", "qwen3_8b-1", env={"KUBECTL_STUB_SAYS": "Unable to connect to the server"})
    assert (unanswered.code, cluster.left()) == (1, left)
    assert "Unable to connect" in unanswered.err
    cleaned = cluster.launch("clean", "qwen3_8b-1", "--json").json
    assert (cleaned["ok"], cluster.left()) == (True, [])
    assert len(cleaned["removed"]) == len(left)
    again = cluster.launch("clean", "qwen3_8b-1")
    assert (again.code, "nothing to remove" in again.out, str(cluster.folder / "out") in again.out) == (0, True, True)
    shown = cluster.status()
    assert (shown["state"], shown["code"], shown["failure"]["code"]) == ("failed", 3, 3)
    assert "iteration" in cluster.launch("logs", "qwen3_8b-1", "--rank", "8").out


def test_the_first_failure_is_the_exit_code(cluster: Cluster):
    cluster.program('[ "$NODE_RANK" = 0 ] || { sleep 1; echo "FileNotFoundError: /data/x.bin"; exit 7; }; sleep 3000')
    done = cluster.launch("run", *cluster.args(), "--wait", "--json")
    assert (done.code, done.json["exit_code"], done.json["state"]) == (1, 7, "failed"), done
    assert done.json["failure"]["reason"] == "missing-file"
    shown = cluster.status()
    assert {end["node"]: end["how"] for end in shown["exits"]} == {0: "stopped", 1: ""}
    assert "BackoffLimitExceeded" in shown["why"]


def test_a_stopped_job_gives_ranks_time_to_save(cluster: Cluster):
    cluster.program("trap 'sleep 1; echo saved; exit 0' TERM; step 1; while :; do sleep 0.2; done")
    assert cluster.launch("run", *cluster.args()).code == 0
    wait_until(lambda: "iteration" in cluster.launch("logs", "qwen3_8b-1", "--rank", "8").out)
    assert cluster.status()["state"] == "running"
    stopped = cluster.launch("stop", "qwen3_8b-1")
    assert stopped.code == 0, stopped
    assert "saved" in (cluster.folder / "out/logs/node0.log").read_text()
    assert cluster.status()["state"] == "stopped"
    assert cluster.left() == []
    assert cluster.launch("stop", "qwen3_8b-1").code == 1


@pytest.mark.sample(keep=1)
@pytest.mark.parametrize("kind", ["jobset", "volcano"])
def test_all_pods_start_again_from_the_last_checkpoint(cluster: Cluster, kind: str):
    cluster.program(
        'step 1; if [ -z "$load" ]; then [ "$NODE_RANK" != 0 ] || { checkpoint 5; step 6; sleep 1; exit 3; };'
        'sleep 600; fi; [ -s "$load/latest_checkpointed_iteration.txt" ] || exit 9; step 10'
    )
    done = cluster.launch("run", *cluster.args(kind), "fault_tolerance.max_restarts=1", "--wait", "--json")
    assert (done.code, done.json["state"]) == (0, "done"), done
    log = (cluster.folder / "out/logs/node1.log").read_text()
    assert "resumes from " in log
    assert "10/10" in log


FAILS_ONCE = """step 1
if [ -z "$load" ]; then [ "$NODE_RANK" = 0 ] || sleep 600; checkpoint 5; step 6; sleep 1; exit 3; fi
[ -s "$load/latest_checkpointed_iteration.txt" ] || exit 9
step 10"""


@pytest.mark.sample(keep=1)
@pytest.mark.parametrize("kind", ["job", "jobset", "trainjob", "volcano", "pytorchjob"])
def test_a_failed_job_is_resumed_from_the_checkpoint_on_its_volume(cluster: Cluster, kind: str):
    cluster.program(FAILS_ONCE)
    volume = f"cluster.volumes=[host:{cluster.folder}:{cluster.folder}]"
    first = cluster.launch("run", *cluster.args(kind), volume, "--wait")
    assert first.code == 1, first
    before = cluster.left()
    done = cluster.launch("resume", "qwen3_8b-1", "--wait")
    assert done.code == 0, done
    checkpoints = f"{cluster.folder}/out/checkpoints"
    assert f"as attempt 1, from its newest complete checkpoint in {checkpoints}" in done.out
    shown = cluster.status()
    assert (shown["state"], shown["code"]) == ("done", 0)
    assert [(end["attempt"], end["code"]) for end in shown["exits"] if end["node"] == 0] == [(0, 3), (1, 0)]
    log = (cluster.folder / "out/logs/node1.log").read_text()
    assert f"resumes from {checkpoints}/v0/checkpoint-5" in log
    assert not set(before) & set(cluster.left()), "objects of the attempt before are deleted"
    assert cluster.launch("clean", "qwen3_8b-1").code == 0
    assert cluster.left() == []


def test_a_job_without_a_checkpoint_on_a_volume_is_not_trained_anew_by_resume(cluster: Cluster):
    cluster.program(FAILS_ONCE)
    assert cluster.launch("run", *cluster.args(), "--wait").code == 1
    before = cluster.left()
    refused = cluster.launch("resume", "qwen3_8b-1")
    assert refused.code == 1
    assert "is on none of their volumes (cluster.volumes)" in refused.err
    assert "(anew)" in refused.err
    assert cluster.left() == before
    # A volume that has lost it: the pods say so, and train nothing.
    cluster.launch("clean", "qwen3_8b-1")
    volume = f"cluster.volumes=[host:{cluster.folder}:{cluster.folder}]"
    words = [*cluster.args(), volume, "--wait"]
    assert cluster.launch("run", *words[:-1], "output_dir=other", "--wait").code == 1
    shutil.rmtree(cluster.folder / "other" / "checkpoints")
    done = cluster.launch("resume", "qwen3_8b-2", "--wait", "--json")
    assert (done.code, done.json["exit_code"], done.json["state"]) == (1, 74, "failed"), done
    log = (cluster.folder / "other/logs/node0.log").read_text()
    assert f"there is no complete checkpoint in {cluster.folder}/other/checkpoints: nothing is trained anew" in log


@pytest.mark.sample(keep=1)
@pytest.mark.parametrize("kind", ["jobset", "volcano"])
def test_restarts_are_counted(cluster: Cluster, kind: str):
    cluster.program('echo once; [ "$NODE_RANK" = 1 ] || sleep 600; exit 5')
    done = cluster.launch("run", *cluster.args(kind), "fault_tolerance.max_restarts=2", "--wait", "--json")
    assert (done.code, done.json["exit_code"], done.json["state"]) == (1, 5, "failed"), done
    assert (cluster.folder / "out/logs/node1.log").read_text().count("once") == 3


def test_a_hang_is_ended_by_the_pod_that_prints_iterations(cluster: Cluster):
    cluster.program('if [ "$NODE_RANK" = 1 ]; then step 1; sleep 1; step 2; fi; sleep 3050')
    done = cluster.launch("run", *cluster.args(), "fault_tolerance.hang_minutes=0.05", "--wait", "--json")
    assert (done.code, done.json["exit_code"], done.json["state"]) == (1, 124, "failed"), done
    assert "no new iteration for" in (cluster.folder / "out/logs/node1.log").read_text()


def test_a_hang_costs_a_restart_where_pods_can_restart_together(cluster: Cluster):
    cluster.program('step 1; sleep 1; step 2; [ "$ATTEMPT" = 1 ] || sleep 3050')
    args = ("fault_tolerance.hang_minutes=0.05", "fault_tolerance.max_restarts=1", "--wait", "--json")
    done = cluster.launch("run", *cluster.args("jobset"), *args)
    assert (done.code, done.json["state"]) == (0, "done"), done


def test_a_watched_pod_gives_ranks_time_to_save_and_loses_no_line(cluster: Cluster):
    cluster.program("trap 'sleep 1; echo saved; exit 0' TERM; step 1; while :; do sleep 0.2; done")
    assert cluster.launch("run", *cluster.args(), "fault_tolerance.hang_minutes=5").code == 0
    wait_until(lambda: "iteration" in cluster.launch("logs", "qwen3_8b-1", "--rank", "8").out)
    assert cluster.launch("stop", "qwen3_8b-1").code == 0
    assert "saved" in (cluster.folder / "out/logs/node0.log").read_text()


def test_a_job_that_waits_says_why(cluster: Cluster):
    cluster.program("step 1")
    args = [*cluster.args(), "backend.env.WANDB_API_KEY=0123456789abcdef"]
    assert cluster.launch("run", *args).code == 0
    wait_until(lambda: cluster.status()["why"])
    shown = cluster.status()
    assert (shown["state"], shown["why"]) == (
        "queued",
        'CreateContainerConfigError: secret "launch-secrets" not found',
    )
    assert cluster.launch("stop", "qwen3_8b-1").code == 0


QUOTA = (
    'Error creating: pods "x-0-abcde" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=8, '
    "used: requests.nvidia.com/gpu=60, limited: requests.nvidia.com/gpu=64"
)


def test_a_job_whose_pods_are_not_made_says_why(cluster: Cluster):
    """A pod waits for its Secret; then the events of the job say more than a pod that has no reason."""
    cluster.program("step 1")
    assert cluster.launch("run", *cluster.args(), "backend.env.WANDB_API_KEY=0123456789abcdef").code == 0
    wait_until(lambda: len(list((cluster.state / "pods").glob("*/waits"))) == 2)
    for file in (cluster.state / "pods").glob("*/pod.json"):
        file.unlink()
    (job,) = (cluster.state / "objects/job").glob("*.json")
    said = [{"type": "Warning", "reason": "FailedCreate", "message": QUOTA, "lastTimestamp": "2026-01-01T00:00:00Z"}]
    (cluster.state / "events").mkdir()
    (cluster.state / "events" / job.name).write_text(json.dumps(said))
    shown = cluster.status()
    assert (shown["state"], shown["why"]) == ("queued", f"FailedCreate: {QUOTA}")
    assert shown["waits"]["reason"] == "cluster-quota"
    assert "cluster.nodes (fewer)" in cluster.launch("status", "qwen3_8b-1").out
    assert cluster.launch("stop", "qwen3_8b-1").code == 0


WARNED = 'would violate PodSecurity "restricted:latest": allowPrivilegeEscalation != false'
REJECTED = 'Error from server (Forbidden): pods "x-0-check" is forbidden: violates PodSecurity "restricted:latest": x'
NO_PODS = 'Error from server (Forbidden): pods is forbidden: User "me" cannot create resource "pods" in API group ""'


def test_what_admission_says_of_a_pod_is_known_before_the_start(cluster: Cluster):
    cluster.program("step 1")
    refused = cluster.launch("run", *cluster.args(), env={"KUBECTL_STUB_POD_SAYS": REJECTED})
    assert refused.code == 1
    assert 'violates PodSecurity "restricted:latest"' in refused.err
    assert not (cluster.folder / "out").exists()
    may_not = {"KUBECTL_STUB_WARNS": WARNED, "KUBECTL_STUB_POD_SAYS": NO_PODS}
    assert cluster.launch("run", *cluster.args(), env=may_not).code == 0, "a user may create jobs and no pods"
    quota = {"KUBECTL_STUB_POD_SAYS": f"Error from server (Forbidden): {QUOTA}"}
    waits = cluster.launch("run", *cluster.args(), "output_dir=out2", env=quota)
    assert (waits.code, "kubernetes warns: its pods wait for quota" in waits.err) == (0, True)
    warned = cluster.launch("run", *cluster.args(), "output_dir=out3", env={"KUBECTL_STUB_WARNS": WARNED})
    assert (warned.code, f"kubernetes warns: {WARNED}" in warned.err) == (0, True)


def test_the_job_owns_the_other_objects(cluster: Cluster):
    cluster.program("step 1")
    assert cluster.launch("run", *cluster.args(), "--wait").code == 0
    trees = [json.loads(path.read_text()) for path in (cluster.state / "objects").rglob("*.json")]
    (job,) = [tree for tree in trees if tree["kind"] == "Job"]
    name, uid = job["metadata"]["name"], job["metadata"]["uid"]
    owner = [{"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid}]
    others = {tree["kind"]: tree["metadata"].get("ownerReferences") for tree in trees if tree is not job}
    assert others == {"ConfigMap": owner, "Service": owner}


FORBIDDEN = 'Error from server (Forbidden): jobs.batch is forbidden: User "me" cannot create resource "jobs"'
REFUSED = "The connection to the server 10.0.0.1:6443 was refused - did you specify the right host or port?"


@pytest.mark.parametrize("says", [FORBIDDEN, REFUSED])
def test_kubectl_s_own_words_are_passed_on_and_nothing_is_left(cluster: Cluster, says: str):
    cluster.program("step 1")
    done = cluster.launch("run", *cluster.args(), env={"KUBECTL_STUB_SAYS": says})
    assert done.code == 1
    assert says in done.err
    assert not (cluster.folder / "out").exists()
    assert not list(cluster.folder.with_suffix(".launch").rglob("*.json"))


def test_an_unknown_namespace_is_the_cluster_s_answer(cluster: Cluster):
    cluster.program("step 1")
    done = cluster.launch("run", *cluster.args(), "cluster.namespace=nowhere")
    assert done.code == 1
    assert 'namespaces "nowhere" not found' in done.err


def test_no_kubectl_says_where_to_get_it(cluster: Cluster):
    cluster.program("step 1")
    done = cluster.launch("run", *cluster.args(), env={"PATH": str(cluster.folder)})
    assert done.code == 1
    assert "no kubectl on the PATH" in done.err


def test_a_cluster_that_does_not_answer_loses_no_job(cluster: Cluster):
    cluster.program("step 1; sleep 3; step 2")
    assert cluster.launch("run", *cluster.args()).code == 0
    away = cluster.launch("status", "qwen3_8b-1", "--json", env={"KUBECTL_STUB_SAYS": REFUSED}).json
    assert away["state"] == "running"
    assert REFUSED in away["why"]
    refused = cluster.launch("stop", "qwen3_8b-1", env={"KUBECTL_STUB_SAYS": REFUSED})
    assert refused.code == 1
    assert REFUSED in refused.err
    wait_until(lambda: cluster.status()["state"] == "done")


def test_the_manifest_runs_without_the_launcher(cluster: Cluster):
    cluster.program("step 1")
    shown = cluster.launch("dry-run", *cluster.args(), "--format", "submit")
    assert shown.code == 0, shown
    environ = {**os.environ, "KUBECTL_STUB": str(cluster.state)}
    applied = subprocess.run(
        [STUB / "kubectl", "apply", "-f", "-", "-o", "name"],
        input=shown.out,
        text=True,
        env=environ,
        check=True,
        cwd="/",
    )
    assert applied.returncode == 0
    wait_until(lambda: list((cluster.state / "status").glob("*.json")) if (cluster.state / "status").is_dir() else ())
    (status,) = (cluster.state / "status").glob("*.json")
    assert json.loads(status.read_text())["conditions"][0]["type"] == "Complete"


def test_the_real_megatron_core_trains_on_two_pods(cluster: Cluster):
    pytest.importorskip("megatron.core")
    size = ("cluster.nodes=2", "cluster.devices_per_node=1", "cluster.container=example.invalid/megatron:1")
    batch = ("batch.global_batch_size=12", "batch.micro_batch_size=1", "batch.seq_length=64")
    steps = ("schedule.train_iters=6", "schedule.lr_warmup_iters=2", "checkpoint.save_interval=3", "output_dir=out")
    python = f"cluster.python={sys.executable}"  # the stand-in's pods have no image of their own
    job = ("+recipe=tiny_qwen3", "backend=megatron_lm", "runtime=rehearsal", "cluster=kubernetes", python)
    done = cluster.launch("run", *job, *size, *batch, *steps, "--wait")
    assert done.code == 0, done
    assert "iteration 6/6" in done.out
    assert (cluster.folder / "out/checkpoints/latest_checkpointed_iteration.txt").read_text().strip() == "6"
