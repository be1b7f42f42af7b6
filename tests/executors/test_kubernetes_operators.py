"""The controllers of JobSet, TrainJob, PyTorchJob and Volcano on a real API server, whose nodes run pods as processes.

Their programs and CRDs are built by control_plane/build.sh.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.commands import CommandServer
from tests.executors.api_server import BINARIES, lacking
from tests.executors.test_kubernetes_resume import FAILS_ONCE, Site
from tests.waiting import wait_until
from tools.bench.faults.kubernetes import Cluster, cluster

OBJECTS = {
    "jobset": "jobsets.jobset.x-k8s.io",
    "trainjob": "trainjobs.trainer.kubeflow.org",
    "pytorchjob": "pytorchjobs.kubeflow.org",
    "volcano": "jobs.batch.volcano.sh",
}
PROGRAMS = {"jobset": "operators", "trainjob": "operators", "pytorchjob": "pytorch", "volcano": "volcano"}
_MISSING = [name for name in sorted({*PROGRAMS.values(), "crds"}) if not (BINARIES / name).exists()]
WHY = lacking(nodes=True) or (f"{', '.join(_MISSING)}: not in KUBE_APISERVER_BIN" if _MISSING else "")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(WHY), reason=WHY or "-")]
RUNTIME = """
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {name: NAME}
spec:
  mlPolicy: {numNodes: 1, torch: {}}
  template:
    spec:
      replicatedJobs:
        - name: node
          template:
            metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
            spec:
              backoffLimit: LIMIT
              template:
                spec:
                  restartPolicy: POLICY
                  containers: [{name: node, image: "example.invalid/torch:1"}]
"""
# One that ends with its first failed pod, and that of Kubeflow, whose pods are started again alone.
RUNTIMES = {"torch-distributed": ("0", "Never"), "again": ("6", "OnFailure")}
QUEUE = "apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {name: default}\nspec: {weight: 1}\n"
# Started by kube-scheduler, since Volcano's own is not here.
PROFILES = """apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
clientConnection: {kubeconfig: CONFIG}
profiles: [{schedulerName: default-scheduler}, {schedulerName: volcano}]
"""


@pytest.fixture(scope="module")
def kube(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with two nodes and all operators for the tests of this module."""
    folder = tmp_path_factory.mktemp("kube")
    with cluster(folder / "cluster") as made:
        plane = made.plane
        (folder / "scheduler.yaml").write_text(PROFILES.replace("CONFIG", str(plane.config)))
        plane.kill("kube-scheduler")
        plane.commands["kube-scheduler"] = [f"--config={folder}/scheduler.yaml", "--secure-port=0"]
        plane.start("kube-scheduler")
        made.kubectl("apply", "--server-side", "-f", str(BINARIES / "crds"))
        made.kubectl("wait", "--for=condition=established", "crd", "--all", "--timeout=60s")
        for name, (limit, policy) in RUNTIMES.items():
            text = RUNTIME.replace("NAME", name).replace("LIMIT", limit).replace("POLICY", policy)
            made.kubectl("apply", "-f", "-", text=text)
        made.kubectl("apply", "-f", "-", text=QUEUE)
        opened = '{"status": {"state": "Open"}}'
        made.kubectl(
            "patch", "queue.scheduling.volcano.sh", "default", "--subresource=status", "--type=merge", "-p", opened
        )
        running = [start(name, folder, plane.config) for name in sorted(set(PROGRAMS.values()))]
        try:
            yield made
        finally:
            for process in running:
                process.kill()
                process.wait()


def start(name: str, folder: Path, config: Path) -> "subprocess.Popen[bytes]":
    words = [str(BINARIES / name), *(("--trainer",) if name == "operators" else ())]
    with (folder / f"{name}.log").open("ab") as log:
        return subprocess.Popen(words, stdout=log, stderr=log, env={"KUBECONFIG": str(config)})


class KindSite(Site):
    """A site of one kind of job."""

    kind = ""

    def args(self, *more: str) -> list[str]:
        return [*super().args(), f"cluster.kind={self.kind}", *more]

    def left(self) -> set[str]:
        """Return every object of runs, also those that operators made."""
        kinds = f"{OBJECTS[self.kind]},jobs.batch,podgroups.scheduling.volcano.sh,service,pod,configmap"
        return set(self.kubectl("get", kinds, "-o", "name").split())


@pytest.fixture(params=OBJECTS)
def site(kube: Cluster, commands: CommandServer, request: pytest.FixtureRequest, tmp_path: Path) -> KindSite:
    """A site without runs, for each kind of job."""
    folder = tmp_path / "here"
    folder.mkdir()
    made = KindSite(folder, kube, commands, f"n{abs(hash(request.node.name)) % 10**8}")
    made.kind = str(request.param)
    return made


def test_a_failed_job_keeps_its_first_exit_code_and_is_resumed(site: KindSite):
    site.program(FAILS_ONCE)
    done = site.launch("run", *site.args(), "--wait", "--json", timeout=300)
    assert (done.code, done.json["exit_code"], done.json["state"]) == (1, 3, "failed"), done
    before = site.left()
    assert any(name.startswith("pod/") for name in before), "the failed pod is kept, with its log"
    resumed = site.launch("resume", "out", "--wait", "--json", timeout=300)
    assert (resumed.code, resumed.json["state"], resumed.json["attempt"]) == (0, "done", 1), resumed
    shown = site.status()
    assert [(end["attempt"], end["code"]) for end in shown["exits"] if end["node"] == 0] == [(0, 3), (1, 0)]
    assert "10/10" in site.log()
    assert not before & site.left()
    assert site.launch("clean", "out").code == 0
    wait_until(lambda: site.left() == set())


def test_a_stopped_job_leaves_nothing_and_its_ranks_save(site: KindSite):
    site.program("trap 'sleep 1; echo saved; exit 0' TERM; step 1; while :; do sleep 0.2; done")
    assert site.launch("run", *site.args()).code == 0
    wait_until(lambda: site.status()["state"] == "running" and "1/10" in site.log() and "1/10" in site.log(1))
    assert site.launch("stop", "out").code == 0
    assert (site.status()["state"], site.status()["code"]) == ("stopped", 143)
    assert "saved" in site.log()
    wait_until(lambda: site.left() == set())


@pytest.mark.parametrize("site", ["jobset", "volcano"], indirect=True)
def test_all_pods_start_again_together(site: KindSite):
    site.program(FAILS_ONCE)
    done = site.launch("run", *site.args("fault_tolerance.max_restarts=1"), "--wait", "--json", timeout=300)
    assert (done.code, done.json["state"]) == (0, "done"), done
    assert "resumes from " in site.log(1)


@pytest.mark.parametrize("site", ["trainjob"], indirect=True)
def test_a_container_that_the_runtime_starts_again_alone_is_shown(site: KindSite):
    site.program('step 1; [ "$NODE_RANK" = 0 ] || sleep 600; exit 4')
    assert site.launch("run", *site.args("cluster.training_runtime=again")).code == 0
    seen: list[Any] = []

    def waits() -> bool:
        seen.append(site.status())
        return "1 of 2 pods wait: CrashLoopBackOff" in str(seen[-1].get("why"))

    wait_until(waits)
    assert (seen[-1]["state"], seen[-1]["waits"]["reason"]) == ("running", "pod-restarts")
    assert (0, 0, 4) in [(end["attempt"], end["node"], end["code"]) for end in seen[-1]["exits"]]
    assert site.launch("stop", "out").code == 0
    wait_until(lambda: site.left() == set())


@pytest.mark.parametrize("site", ["trainjob"], indirect=True)
def test_what_a_container_printed_before_it_was_started_again_alone_is_kept(site: KindSite):
    """Nobody asks for the output meanwhile: `kubectl logs` then has the second container's only."""
    count, go = site.folder / "count", site.folder / "go"
    site.program(
        f'[ "$NODE_RANK" = 0 ] || sleep 3000\ntouch {count}; echo "start $(($(wc -l <{count}) + 1))"'
        f"\necho x >>{count}; [ $(wc -l <{count}) = 1 ] || until [ -e {go} ]; do sleep 0.2; done; exit 4"
    )
    assert site.launch("run", *site.args("cluster.training_runtime=again")).code == 0
    wait_until(lambda: count.exists() and count.read_text().count("x") == 2)
    wait_until(lambda: "start 2" in site.launch("logs", "out", "--rank", "0").out)
    shown = site.launch("logs", "out", "--rank", "0").out.splitlines()
    assert [line for line in shown if line.startswith("start")] == ["start 1", "start 2"]
    assert site.launch("stop", "out").code == 0
    wait_until(lambda: site.left() == set())


def quota(site: KindSite, devices: int) -> None:
    """Let the namespace have so many devices."""
    hard = {"requests.nvidia.com/gpu": str(devices)}
    tree = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "gpus"}, "spec": {"hard": hard}}
    (site.folder / "quota.json").write_text(json.dumps(tree))
    site.kubectl("apply", "-f", f"{site.folder}/quota.json")
    read = ("get", "resourcequota", "gpus", "-o", "jsonpath={.status.hard}")
    wait_until(lambda: f'"{devices}"' in site.kubectl(*read))


def test_a_quota_is_named_before_the_start_and_while_the_job_waits_for_it(site: KindSite):
    """Also of a TrainJob, whose pods are those of the cluster's training runtime with the job's values."""
    site.program("step 1; step 10")
    fine = site.launch("doctor", *site.args())
    assert (fine.code, "Kubernetes  it accepts the job" in fine.out) == (0, True), fine
    quota(site, 4)
    warned = site.launch("doctor", *site.args())
    assert (warned.code, "exceeded quota: gpus" in warned.out) == (0, True), warned
    begun = site.launch("run", *site.args())
    assert (begun.code, "its pods wait for quota" in begun.err) == (0, True), begun
    wait_until(lambda: "exceeded quota: gpus" in site.status()["why"])
    shown = site.status()
    assert (shown["state"], shown["waits"]["reason"]) == ("queued", "cluster-quota")
    assert "StatusError" not in shown["why"]
    quota(site, 16)
    wait_until(lambda: site.status()["state"] == "done")
    assert site.launch("clean", "out").code == 0
    wait_until(lambda: site.left() == set())
