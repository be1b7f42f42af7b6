"""Faults of machines, networks, queues and controllers."""

import contextlib
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

from tools.bench.faults.case import ASKED, EARLY, LAST, Case
from tools.bench.faults.conditions import stop
from tools.bench.faults.kubernetes import KubernetesStage
from tools.bench.faults.machines import MachineStage, SlurmStage, SshStage
from tools.bench.faults.stage import NotReached, wait_until

_ONCE = ("cluster.requeue=false",)


def _ended(stage: Any) -> None:
    """Wait for the end of the user's command."""
    stage.process.wait(150)


# -- ssh


def crash(node: int) -> Callable[[Any], None]:
    """Return what lets a machine die."""
    return lambda stage: stage.crash(node)


def cut_until_the_end(stage: MachineStage) -> None:
    """Cut a machine off, and connect it again once the run has ended without it."""
    stage.cut()
    _ended(stage)
    stage.machines.call("link", stage.host(), "up")
    with contextlib.suppress(NotReached):  # what ends there can be asked for now only
        wait_until(lambda: not stage.left(), 60, "")


def cut_for(seconds: float) -> Callable[[Any], None]:
    """Return what cuts a machine off for some seconds."""

    def do(stage: MachineStage) -> None:
        stage.cut()
        time.sleep(seconds)
        stage.machines.call("link", stage.host(), "up")

    return do


def kill_sshd(stage: SshStage) -> None:
    """Kill all of sshd on a machine, and start it again."""
    stage.machines.kill(stage.host(), "sshd")
    stage.machines.call("sshd", stage.host())


def kill_by_name(stage: MachineStage) -> None:
    """Kill every process of node.sh on a machine, as `pkill -9 -f node.sh` does."""
    stage.machines.kill(stage.host(), "run/node.sh")


def start(stage: Any) -> None:
    """Start the job, which does not run."""
    stage.start(wait=stage.case.wait)


def _ssh() -> Iterator[Case]:
    def case(name: str, do: Callable[[Any], None], **more: Any) -> Case:
        return Case(executor="ssh", group="machines", name=name, do=do, **more)

    lost: dict[str, Any] = {"state": "failed", "code": 1, "reason": "node-lost", "settle": 120}
    yield case("the second node dies", crash(1), **lost)
    yield case("the first node dies", crash(0), **lost)
    yield case("the network of a node is cut until the job has ended", cut_until_the_end, **lost)
    yield case("the network of a node is cut for 20 s", cut_for(20), state="done", code=0, saved=LAST, finish=True)
    yield case("sshd of a node is killed", kill_sshd, **lost)
    again = ("fault_tolerance.max_restarts=1",)
    yield case(
        "sshd of a node is killed, with a restart",
        kill_sshd,
        overrides=again,
        state="done",
        code=0,
        saved=LAST,
        finish=True,
    )
    yield case("pkill -9 -f node.sh on a node", kill_by_name, state="failed", code=1)
    yield case(
        "a host that cannot be reached",
        start,
        overrides=("cluster.hosts=[n1,n9]",),
        starts=False,
        state="",
        code=1,
        saved=0,
    )


# -- Slurm


def controller_restarts(stage: SlurmStage) -> None:
    """Kill slurmctld and start it again; meanwhile the state is the last known one."""
    stage.controller("KILL")
    shown = stage.status()
    if shown.get("state") != "running" or "cannot be queried" not in str(shown.get("why")):
        stage.problems.append(f"without the controller: {shown.get('state')} {shown.get('why')}")
    stage.controller_up()


def controller_is_away_at_the_end(stage: SlurmStage) -> None:
    """Kill slurmctld, let the job end, and start it again."""
    stage.controller("KILL")
    stage.touch("go")
    wait_until(lambda: stage.saved() == LAST, 30, "it does not end")
    time.sleep(5)
    stage.controller_up()


def slurmd_restarts(stage: SlurmStage) -> None:
    """Kill slurmd of a node and start it again."""
    stage.machines.kill(stage.host(), "slurmd -f")
    time.sleep(1)
    stage.machines.call("slurmd", stage.host())


def node_dies(stage: SlurmStage) -> None:
    """Let a node die; the job is started again on others."""
    stage.crash()
    stage.now()


def requeue(stage: SlurmStage) -> None:
    """Requeue the job as an administrator."""
    stage.slurm("scontrol", "requeue", stage.job)
    stage.now()


def preempt(stage: SlurmStage) -> None:
    """Submit an urgent job that needs all machines."""
    stage.slurm("sbatch", "-p", "urgent", "-N3", "--exclusive", "-o", "/dev/null", "--wrap=sleep 2")


def preempt_and_go_on(stage: SlurmStage) -> None:
    """Preempt the job, which is requeued."""
    preempt(stage)
    wait_until(lambda: stage.status().get("state") == "queued", 90, f"not preempted: {stage.status()}")
    wait_until(
        lambda: (
            "sleep" not in stage.slurm("squeue", "-h", "-p", "urgent", "-o", "%j")
            and not stage.slurm("squeue", "-h", "-p", "urgent")
        ),
        60,
        "the urgent job",
    )
    stage.now()


def slurm(*words: str) -> Callable[[Any], None]:
    """Return what runs one of Slurm's commands on the job."""
    return lambda stage: stage.slurm(*(stage.job if word == "JOB" else word for word in words)) and None


def suspend(stage: SlurmStage) -> None:
    """Suspend the job and go on."""
    stage.slurm("scontrol", "suspend", stage.job)
    time.sleep(3)
    if (state := stage.status().get("state")) != "running":
        stage.problems.append(f"suspended: {state}")
    stage.slurm("scontrol", "resume", stage.job)


def drain(stage: SlurmStage) -> None:
    """Drain a node of the job."""
    stage.slurm("scontrol", "update", f"NodeName={stage.host()}", "State=DRAIN", "Reason=test")


def stop_waiting(stage: SlurmStage) -> None:
    """Submit a job that waits, and stop it."""
    stage.start(wait=True)
    wait_until(lambda: stage.status().get("state") == "queued", 60, "not queued")
    stage.find_id()
    stop(stage)


def _slurm() -> Iterator[Case]:
    def case(name: str, do: Callable[[Any], None], **more: Any) -> Case:
        return Case(executor="slurm", group="machines", name=name, do=do, **more)

    done: dict[str, Any] = {"state": "done", "code": 0, "saved": LAST, "finish": True}
    yield case("slurmctld is killed and started again", controller_restarts, **done)
    yield case("slurmctld is away when the job ends", controller_is_away_at_the_end, **done, settle=90)
    yield case("slurmd of a node is killed and started again", slurmd_restarts, **done)
    yield case("a node dies, the job is requeued", node_dies, **done, settle=120)
    yield case("a node dies, cluster.requeue=false", crash(1), overrides=_ONCE, state="failed", code=1, settle=120)
    yield case("the network of a node is cut for 3 s", cut_for(3), **done)
    yield case(
        "the network of a node is cut until the job has ended, cluster.requeue=false",
        cut_until_the_end,
        overrides=_ONCE,
        state="failed",
        code=1,
        settle=120,
    )
    yield case("scontrol requeue", requeue, **done, settle=120)
    yield case("preempted by an urgent job, requeued", preempt_and_go_on, **done, settle=120)
    yield case(
        "preempted by an urgent job, cancelled",
        preempt,
        overrides=("cluster.partition=spot",),
        state="failed",
        code=1,
        reason="PREEMPTED",
        settle=90,
    )
    yield case(
        "the time limit",
        lambda stage: None,
        overrides=("cluster.time_limit=1",),
        state="failed",
        code=1,
        reason="TIMEOUT",
        saved=ASKED,
        settle=180,
    )
    yield case("scancel", slurm("scancel", "JOB"), state="stopped", code=143, saved=ASKED, resumes=True)
    yield case(
        "scancel --signal=KILL --full",
        slurm("scancel", "--signal=KILL", "--full", "JOB"),
        overrides=_ONCE,
        state="stopped",
        code=143,
    )
    yield case("scontrol suspend and resume", suspend, **done)
    yield case("a node is drained", drain, **done)
    yield case(
        "launch stop of a job that waits",
        stop_waiting,
        overrides=('cluster.sbatch_options=["--begin=now+1hour"]',),
        starts=False,
        state="stopped",
        code=143,
        saved=0,
    )
    yield case("pkill -9 -f node.sh on a node", kill_by_name, overrides=_ONCE, state="failed", code=1)


# -- Kubernetes


def delete_pod(stage: KubernetesStage) -> None:
    """Delete a pod."""
    stage.kubectl("delete", "pod", stage.pod().name, "--wait=false")


def delete_job(stage: KubernetesStage) -> None:
    """Delete the job by kubectl."""
    stage.kubectl("delete", "job", "--all", "--wait=false")


def delete_scripts(stage: KubernetesStage) -> None:
    """Delete the ConfigMap of the scripts."""
    stage.kubectl("delete", "configmap", "-l", "launch-run")


def pressure(stage: KubernetesStage) -> None:
    """Let the kubelet evict a pod."""
    stage.cluster.nodes.evict(stage.pod(), "The node was low on resource: ephemeral-storage.")


def drained(stage: KubernetesStage) -> None:
    """Evict a pod through the API, as kubectl drain does."""
    stage.touch("slow")
    pod = stage.pod()
    tree = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod.name, "namespace": stage.space}}
    stage.cluster.nodes.api("POST", f"{pod.path}/eviction", tree)


def machine_dies(stage: KubernetesStage) -> None:
    """Let a node die; once it is seen as lost, its object is deleted."""
    node = stage.pod().node
    stage.cluster.nodes.crash(node)
    wait_until(
        lambda: "Unknown" in stage.cluster.kubectl("get", "node", node, "-o", "jsonpath={.status.conditions}"),
        60,
        "not seen",
    )
    stage.cluster.nodes.remove(node)


def preempted(stage: KubernetesStage) -> None:
    """Create a pod of a higher priority that needs a whole node."""
    stage.touch("slow")
    name = f"high-{stage.space}"
    stage.apply(
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": 1000}
    )
    container = {
        "name": "c",
        "image": "i:1",
        "command": ["sleep", "2"],
        "resources": {"limits": {"nvidia.com/gpu": "8"}},
        "volumeMounts": [],
    }
    spec = {"priorityClassName": name, "restartPolicy": "Never", "containers": [container], "volumes": []}
    stage.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "urgent"}, "spec": spec})
    stage.undo.append(lambda: stage.cluster.kubectl("delete", "priorityclass", name))


def api_restarts(stage: KubernetesStage) -> None:
    """Kill the API server and start it again; meanwhile the state is the last known one."""
    stage.cluster.plane.kill("kube-apiserver")
    try:
        shown = stage.status()
        if shown.get("state") != "running" or "cannot be reached" not in str(shown.get("why")):
            stage.problems.append(f"without the API server: {shown.get('state')} {shown.get('why')}")
    finally:
        stage.cluster.plane.start("kube-apiserver")


def api_is_away_at_the_end(stage: KubernetesStage) -> None:
    """Kill the API server, let the job end, and start it again."""
    stage.cluster.plane.kill("kube-apiserver")
    try:
        stage.touch("go")
        wait_until(lambda: stage.saved() == LAST, 30, "it does not end")
        time.sleep(2)
    finally:
        stage.cluster.plane.start("kube-apiserver")


def restarts(name: str) -> Callable[[Any], None]:
    """Return what kills a part of the control plane and starts it again."""

    def do(stage: KubernetesStage) -> None:
        stage.cluster.plane.kill(name)
        time.sleep(2)
        stage.cluster.plane.start(name)

    return do


def waits_for(text: str) -> Callable[[Any], None]:
    """Return what submits a job that waits, until its reason has a text (a regular expression), and then stops it."""

    def do(stage: KubernetesStage) -> None:
        if "quota" in stage.case.name:
            hard = {"requests.nvidia.com/gpu": "4"}
            stage.apply(
                {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "gpus"}, "spec": {"hard": hard}}
            )
            wait_until(
                lambda: "gpu" in stage.kubectl("get", "resourcequota", "gpus", "-o", "jsonpath={.status.hard}"),
                60,
                "no quota",
            )
        stage.start(wait=True)

        def said() -> bool:
            shown = stage.status()
            return bool(re.search(text, f"{(shown.get('waits') or {}).get('reason')} {shown.get('why')}"))

        try:
            wait_until(said, 90, "")
        except NotReached:
            raise NotReached(f"it does not say why it waits: {stage.status()}, {stage.shown()[-300:]}") from None
        stage.find_id()
        stop(stage)

    return do


def refused(stage: KubernetesStage) -> None:
    """Start a job in a namespace whose PodSecurity does not admit it."""
    stage.cluster.kubectl("label", "namespace", stage.space, "pod-security.kubernetes.io/enforce=restricted")
    stage.start(wait=True)


def _kubernetes() -> Iterator[Case]:
    def case(name: str, do: Callable[[Any], None], **more: Any) -> Case:
        return Case(executor="kubernetes", group="machines", name=name, do=do, **more)

    done: dict[str, Any] = {"state": "done", "code": 0, "saved": LAST, "finish": True}
    failed: dict[str, Any] = {"state": "failed", "code": 1, "settle": 90}
    waiting: dict[str, Any] = {"state": "stopped", "code": 143, "saved": 0, "starts": False}
    yield case("the API server is killed and started again", api_restarts, **done, settle=90)
    yield case("the API server is away when the job ends", api_is_away_at_the_end, **done, settle=90)
    yield case(
        "the controller manager is killed and started again", restarts("kube-controller-manager"), **done, settle=90
    )
    yield case("the scheduler is killed and started again", restarts("kube-scheduler"), **done)
    yield case("a pod is deleted", delete_pod, **failed, saved=EARLY)
    yield case("kubectl delete job", delete_job, state="stopped", code=143, saved=ASKED, settle=60)
    yield case("the ConfigMap of the scripts is deleted", delete_scripts, **done)
    yield case("a pod is evicted by its node", pressure, **failed, reason="evict")
    yield case("a pod is evicted by a drain, and takes 3 s to end", drained, **failed, reason="evict")
    yield case("a node dies", machine_dies, **{**failed, "settle": 120})
    yield case("preempted by a pod of a higher priority, and takes 3 s to end", preempted, **failed, reason="preempt")
    yield case(
        "the time limit",
        lambda stage: None,
        overrides=("cluster.time_limit=0:20",),
        **failed,
        reason="DeadlineExceeded",
    )
    yield case(
        "out of memory (limit of the pod)",
        lambda stage: stage.touch("eat", "1"),
        overrides=("cluster.memory=300Mi",),
        **failed,
        reason="host-out-of-memory",
    )
    yield case(
        "the image cannot be pulled, then launch stop",
        waits_for("image"),
        overrides=("cluster.container=example.invalid/missing:1",),
        **waiting,
    )
    yield case("the quota is used up, then launch stop", waits_for("quota"), **waiting)
    yield case("no node has the devices, then launch stop", waits_for("pods wait.*Insufficient"), nodes=6, **waiting)
    yield case("PodSecurity does not admit the pods", refused, state="", code=1, saved=0, starts=False)


CASES = (*_ssh(), *_slurm(), *_kubernetes())
