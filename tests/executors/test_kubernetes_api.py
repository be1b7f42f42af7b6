"""Against a real API server: what it validates, admits, deletes with its owner, and says in events."""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launcher.executors import private
from launcher.executors.failure import CannotStart
from launcher.executors.kubernetes.executor import EXECUTOR
from launcher.executors.record import Record, read_causes, read_exits, write_record
from launcher.observe.reason import Kind
from launcher.observe.reasons import reason_of
from launcher.plan.executor import Place
from tests.executors.api_server import api_server, lacking
from tests.executors.test_kubernetes import PATCH, SITE, plan
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(lacking()), reason=lacking() or "-")]


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The kubeconfig of a cluster for all tests of this module."""
    with api_server(tmp_path_factory.mktemp("kube")) as found:
        yield found


class Namespace:
    """A namespace of its own for each test."""

    def __init__(self, name: str, config: Path) -> None:
        self.name, self.config = name, config

    def kubectl(self, *words: str, text: str | None = None) -> str:
        """Run kubectl in the namespace."""
        command = ["kubectl", f"--kubeconfig={self.config}", f"--namespace={self.name}", *words]
        return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout

    def apply(self, tree: dict[str, Any]) -> None:
        """Create an object."""
        self.kubectl("apply", "-f", "-", text=json.dumps(tree))

    def names(self, kinds: str) -> list[str]:
        """Return the names of objects."""
        return self.kubectl("get", kinds, "-l", "launch-run", "-o", "name").split()


@pytest.fixture
def space(config: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, tmp_path: Path) -> Namespace:
    """An empty namespace, and a folder to launch from."""
    monkeypatch.setenv("KUBECONFIG", str(config))
    monkeypatch.chdir(tmp_path)
    found = Namespace(f"n{abs(hash(request.node.name)) % 10**8}", config)
    found.kubectl("create", "namespace", found.name)
    wait_until(lambda: "default" in found.kubectl("get", "serviceaccount", "-o", "name"))
    return found


def submit(space: Namespace, made: Any, folder: Path, run: str = "x-1") -> dict[str, Any]:
    """Submit a plan as `launch run` does, and return its handle."""
    place = Place(id=run, folder=str(folder), launch_dir=str(folder))
    for each in ("run", "logs"):
        private.make_folder(folder / each)
    for file in EXECUTOR.render(made, place):
        Path(file.path).write_text(file.content)
    done = subprocess.run(EXECUTOR.command(made, place), capture_output=True, text=True, check=True)
    handle = dict(EXECUTOR.submitted(done.stdout).handle)
    write_record(
        Record(
            id=run, executor="kubernetes", folder=str(folder), host="h", user="me", pid=1, start=1, submitted="",
            nodes=len(made.nodes), devices_per_node=8, handle=handle,
        )
    )  # fmt: skip
    return handle


def preflight(made: Any) -> list[str]:
    """Return the cluster's own warnings: the plan here has no volume, and its checkpoints are lost with the pods."""
    return [text for text in EXECUTOR.preflight(made) if "are lost with the pods" not in text]


def in_space(space: Namespace, **fields: Any) -> Any:
    return plan("job", **{"namespace": space.name, **fields})


def test_objects_are_valid_and_nothing_is_created(space: Namespace):
    assert preflight(in_space(space)) == []
    assert space.names("job,configmap,service,pod") == []


def test_what_a_site_may_ask_for_is_valid_and_its_service_account_must_exist(space: Namespace):
    site = {**SITE, "context": "c", "namespace": space.name, "pod_patch": PATCH}
    with pytest.raises(CannotStart, match='serviceaccount "trainer" not found'):
        preflight(in_space(space, **site))
    space.kubectl("create", "serviceaccount", "trainer")
    assert preflight(in_space(space, **{**site, "queue": None})) == []


def test_a_queue_that_nothing_reads_is_a_warning(space: Namespace):
    (warning,) = preflight(in_space(space, queue="team"))
    assert warning.startswith("cluster.queue=team has no effect: the cluster has no Kueue")


def test_a_priority_class_must_exist(space: Namespace):
    with pytest.raises(CannotStart, match="no PriorityClass with name high"):
        preflight(in_space(space, priority_class="high"))


def test_the_restricted_profile(space: Namespace):
    labels = ("pod-security.kubernetes.io/enforce=restricted", "pod-security.kubernetes.io/warn=restricted")
    space.kubectl("label", "namespace", space.name, *labels)
    with pytest.raises(CannotStart, match="violates PodSecurity"):
        preflight(in_space(space))
    assert preflight(in_space(space, pod_security="restricted", volumes=["pvc:d/me:/data"])) == []
    assert preflight(in_space(space, pod_security="restricted", run_as_user=1000)) == []


def test_a_profile_that_only_warns_is_a_warning(space: Namespace):
    space.kubectl("label", "namespace", space.name, "pod-security.kubernetes.io/warn=restricted")
    warnings = preflight(in_space(space))
    assert any("violate PodSecurity" in text for text in warnings)


def test_a_quota_that_is_used_up_is_a_warning_and_then_the_reason(space: Namespace, tmp_path: Path):
    hard = {"requests.nvidia.com/gpu": "4"}
    space.apply({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "gpus"}, "spec": {"hard": hard}})
    wait_until(lambda: "gpu" in space.kubectl("get", "resourcequota", "gpus", "-o", "jsonpath={.status.hard}"))
    made = in_space(space)
    (warning,) = preflight(made)
    assert "wait for quota" in warning
    handle = submit(space, made, tmp_path / "out")
    wait_until(lambda: EXECUTOR.observe(handle).why)
    observed = EXECUTOR.observe(handle)
    assert observed.state == "queued"
    assert "exceeded quota: gpus" in observed.why
    reason = reason_of(observed.why, Kind.QUEUE)
    assert reason is not None
    assert reason.name == "cluster-quota"


def test_the_job_owns_the_others_and_clean_leaves_nothing(space: Namespace, tmp_path: Path):
    handle = submit(space, in_space(space), tmp_path / "out")
    wait_until(lambda: len(space.names("pod")) == 2)
    for kind in ("configmap", "service"):
        owner = json.loads(space.kubectl("get", kind, handle["name"], "-o", "jsonpath={.metadata.ownerReferences}"))
        assert [(each["kind"], each["name"]) for each in owner] == [("Job", handle["name"])]
    space.kubectl("delete", "job", handle["name"], "--wait=false")
    wait_until(lambda: space.names("job,configmap,service,pod") == [])
    again = submit(space, in_space(space), tmp_path / "out2", "x-2")
    wait_until(lambda: len(space.names("pod")) == 2)
    # What the job owns, the cluster may delete before it is asked for.
    assert f"job.batch/{again['name']}" in EXECUTOR.clean(again, tmp_path / "out2")
    wait_until(lambda: space.names("job,configmap,service,pod") == [])
    assert EXECUTOR.clean(again, tmp_path / "out2") == []


def end(space: Namespace, pod: str, code: int, reason: str, phase: str) -> None:
    terminated = {"exitCode": code, "reason": reason, "finishedAt": "2026-01-01T00:00:00Z", "startedAt": None}
    container = {"name": "node", "image": "i", "imageID": "i", "ready": False, "restartCount": 0}
    status = {"phase": phase, "containerStatuses": [{**container, "state": {"terminated": terminated}}]}
    space.kubectl("patch", pod, "--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))


def test_the_end_of_a_pod_is_the_end_of_the_run_and_its_reason_is_kept(space: Namespace, tmp_path: Path):
    handle = submit(space, in_space(space), tmp_path / "out")
    wait_until(lambda: len(space.names("pod")) == 2)
    (first,) = (name for name in space.names("pod") if f"{handle['name']}-0-" in name)
    end(space, first, 137, "OOMKilled", "Failed")
    wait_until(lambda: EXECUTOR.observe(handle).state == "failed")
    assert [(each.node, each.code) for each in read_exits(tmp_path / "out")] == [(0, 137)]
    assert read_causes(tmp_path / "out/run/causes/0.0") == ["OOMKilled"]


def test_an_ended_job_is_deleted_with_its_objects_after_its_time(space: Namespace, tmp_path: Path):
    made = in_space(space, nodes=1)
    made = replace(made, start=replace(made.start, settings=replace(made.start.settings, ttl=3)))
    handle = submit(space, made, tmp_path / "out")
    wait_until(lambda: len(space.names("pod")) == 1)
    end(space, space.names("pod")[0], 0, "Completed", "Succeeded")
    wait_until(lambda: space.names("job,configmap,service") == [])
    assert EXECUTOR.observe(handle).state == ""
