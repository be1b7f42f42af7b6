"""What the cluster says of a pod in a dry run: a reason not to start, a warning, or nothing that is about the job."""

import json
from pathlib import Path

import pytest

from launcher.executors.kubernetes.admission import queue_warnings, rejected_pod, template_of, wanted_pods
from launcher.executors.kubernetes.kubectl import Refused
from tests.executors.test_kubernetes import KINDS, manifest, pod_of
from tests.executors.test_kubernetes_seen import program

HEAD = 'Error from server (Forbidden): error when creating "STDIN": '
POD = f'{HEAD}pods "x-0-check" is forbidden: '
# What kubectl writes, and what follows: the start is refused, it is a warning, or it says nothing of the job.
ANSWERS = (
    (f'{POD}violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false', "refused"),
    (f'{POD}error looking up service account n/trainer: serviceaccount "trainer" not found', "refused"),
    (f"{POD}no PriorityClass with name high was found", "refused"),
    (f"{POD}failed quota: gpus: must specify limits.memory for: node", "refused"),
    (f"{POD}maximum memory usage per Container is 1Gi, but limit is 900Gi", "refused"),
    (f"{POD}exceeded quota: gpus, requested: requests.nvidia.com/gpu=8, used: 60, limited: 64", "warning"),
    (f'{HEAD}pods is forbidden: User "me" cannot create resource "pods" in API group "" in the namespace "n"', ""),
    (f'{HEAD}admission webhook "no-bare-pods" denied the request: pods need an owner', ""),
    ("Unable to connect to the server: net/http: TLS handshake timeout", ""),
)


@pytest.mark.parametrize("says, follows", ANSWERS, ids=range(len(ANSWERS)))
def test_an_answer_about_a_pod(says: str, follows: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "answer").write_text(says)
    program(tmp_path, monkeypatch, f"cat >/dev/null; cat {tmp_path}/answer >&2; exit 1")
    job = manifest("job")[-1]
    if follows == "refused":
        with pytest.raises(Refused):
            rejected_pod({}, job)
    else:
        assert len(rejected_pod({}, job)) == (follows == "warning")


@pytest.mark.parametrize("kind", KINDS)
def test_the_pod_is_that_of_the_job(kind: str):
    job = manifest(kind)[-1]
    template = template_of(job)
    if kind == "trainjob":
        assert template is None, "the cluster's training runtime has it"
    else:
        assert template is not None
        assert template["spec"] == pod_of(job)


def test_the_pod_of_a_trainjob_is_that_of_its_runtime_with_the_job_s_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The runtime's tolerations and other containers stay; image, command and devices are the job's."""
    theirs = {"name": "node", "image": "theirs", "resources": {"limits": {"rdma/hca": 1}}}
    own = {"containers": [theirs, {"name": "proxy"}], "tolerations": [{"key": "gpu"}]}
    replicated = [{"name": "dataset"}, {"name": "node", "template": {"spec": {"template": {"spec": own}}}}]
    runtime = {"spec": {"template": {"spec": {"replicatedJobs": replicated}}}}
    (tmp_path / "runtime").write_text(json.dumps(runtime))
    body = f"if [[ $* == *' get '* || $1 == get ]]; then cat {tmp_path}/runtime; else cat >{tmp_path}/pod; fi"
    program(tmp_path, monkeypatch, body)
    job = manifest("trainjob")[-1]
    assert list(rejected_pod({}, job)) == []
    pod = json.loads((tmp_path / "pod").read_text())["spec"]
    node, proxy = pod["containers"]
    trainer = job["spec"]["trainer"]
    assert (node["image"], node["command"]) == (trainer["image"], trainer["command"])
    assert node["resources"] == trainer["resourcesPerNode"]
    assert (proxy, pod["tolerations"]) == ({"name": "proxy"}, [{"key": "gpu"}])


NO_KUEUE = 'echo "error: the server doesn\'t have a resource type" >&2; exit 1'
QUEUES = {
    "no Kueue": (NO_KUEUE, "team", "cluster.queue=team has no effect: the cluster has no Kueue"),
    "no such queue": ("echo localqueue.kueue.x-k8s.io/research", "team", "works: cluster.queue=research"),
    "no queue at all": ("true", "team", "Kueue has no LocalQueue team in the namespace"),
    "the queue": ("echo localqueue.kueue.x-k8s.io/team", "team", ""),
    "not allowed to list": ("echo 'Error from server (Forbidden): localqueues is forbidden' >&2; exit 1", "team", ""),
    "none asked for": (NO_KUEUE, None, ""),
}


@pytest.mark.parametrize("name", QUEUES)
def test_a_queue_that_nothing_reads_is_a_warning(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    body, queue, says = QUEUES[name]
    program(tmp_path, monkeypatch, body)
    job = manifest("job")[-1]
    labels = {**job["metadata"]["labels"], **({"kueue.x-k8s.io/queue-name": queue} if queue else {})}
    warnings = list(queue_warnings({}, {**job, "metadata": {**job["metadata"], "labels": labels}}))
    assert (len(warnings), says in "".join(warnings)) == (bool(says), True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("nodes", [1, 3])
def test_a_job_says_how_many_pods_it_asks_for(kind: str, nodes: int):
    assert wanted_pods(manifest(kind, nodes)[-1]) == nodes
    assert wanted_pods({"spec": {"replicatedJobs": "x", "completions": "2"}}) == 0
