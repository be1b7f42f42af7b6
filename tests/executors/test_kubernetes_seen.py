"""What is read from a cluster: whose words it is, how pods ended, and that no answer harms the run's directory."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from launcher.executors import private
from launcher.executors.failure import CannotStart
from launcher.executors.kubernetes import kubectl as calls
from launcher.executors.kubernetes.events import waits_for
from launcher.executors.kubernetes.executor import EXECUTOR
from launcher.executors.kubernetes.kubectl import Refused, ask, documents, items, kubectl, tidy
from launcher.executors.kubernetes.pods_seen import pods_in
from launcher.executors.kubernetes.state import keep_disruptions, keep_exits, own_folder, seen, state_of
from launcher.executors.record import Record, read_causes, read_exits, read_record, read_status, write_record
from launcher.observe.failure import first_failure
from tests.waiting import STUCK_SECONDS

HANDLE = {"kind": "job", "name": "x-1", "namespace": "training"}


def pod(name: str = "x-1-0-abcde", node: str = "0", **status: Any) -> dict[str, Any]:
    notes = {"batch.kubernetes.io/job-completion-index": node}
    metadata = {"name": name, "labels": {"launch-run": "x-1"}, "annotations": notes}
    return {"kind": "Pod", "metadata": metadata, "spec": {"nodeName": "m0"}, "status": {"phase": "Pending", **status}}


def ended(code: int, reason: str, at: str = "2026-01-01T00:00:00Z", **more: Any) -> dict[str, Any]:
    return {"name": "node", "state": {"terminated": {"exitCode": code, "reason": reason, "finishedAt": at, **more}}}


def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    """Put a program named kubectl on the PATH."""
    file = tmp_path / "bin" / "kubectl"
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"#!/usr/bin/env bash\n{body}\n")
    file.chmod(0o755)
    monkeypatch.setenv("PATH", f"{file.parent}:{os.environ['PATH']}")


# status, exit code, what is kept of the end
ENDS: dict[str, tuple[dict[str, Any], int, tuple[str, ...]]] = {
    "OOMKilled": ({"containerStatuses": [ended(137, "OOMKilled")]}, 137, ("OOMKilled",)),
    "Error": ({"containerStatuses": [ended(3, "Error")]}, 3, ("Error",)),
    "its message": (
        {"containerStatuses": [ended(128, "StartError", message="exec: bash:\nnot found")]},
        128,
        ("StartError exec: bash: not found",),
    ),
    "success": ({"containerStatuses": [ended(0, "Completed")]}, 0, ()),
    "Evicted, without a container": (
        {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."},
        137,
        ("Evicted The node was low on resource: memory.",),
    ),
    "DeadlineExceeded": (
        {"phase": "Failed", "reason": "DeadlineExceeded", "containerStatuses": [ended(143, "Error")]},
        143,
        ("Error", "DeadlineExceeded"),
    ),
    "preempted": (
        {
            "phase": "Failed",
            "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}],
            "containerStatuses": [ended(137, "Error")],
        },
        137,
        ("Error", "PreemptionByScheduler"),
    ),
    "an init container": (
        {
            "phase": "Failed",
            "initContainerStatuses": [{**ended(4, "Error"), "name": "wait"}],
            "containerStatuses": [{"name": "node", "state": {"waiting": {"reason": "PodInitializing"}}}],
        },
        4,
        ("Error container wait",),
    ),
    "a sidecar is another one": (
        {"containerStatuses": [{**ended(0, "Completed"), "name": "logs"}, ended(7, "Error")]},
        7,
        ("Error",),
    ),
}


@pytest.mark.parametrize("name", ENDS)
def test_how_a_pod_ended_is_kept(name: str):
    status, code, kept = ENDS[name]
    (found,) = pods_in([pod(**{"phase": "Failed", **status})])
    assert (found.code, found.ended) == (code, kept)


HOSTILE: tuple[dict[str, Any], ...] = (
    pod(name="../../etc/passwd"),
    pod(name="x/../y"),
    {"kind": "Pod"},
    {"kind": "Pod", "metadata": {"name": 3}},
    {"kind": "Pod", "metadata": {"name": "a"}, "status": []},
    pod(containerStatuses=[{"name": "node", "state": {"terminated": {"exitCode": "x"}}}]),
    pod(containerStatuses=[ended(1, "Error", at="tomorrow")]),
)


@pytest.mark.parametrize("tree", HOSTILE, ids=range(len(HOSTILE)))
def test_an_object_that_is_no_pod_of_kubernetes_is_left_out(tree: dict[str, Any]):
    assert pods_in([tree, pod("y-1")])[-1].name == "y-1"
    assert len(pods_in([tree])) == 0


def test_workers_of_a_pytorchjob_follow_its_master():
    trees = [pod(f"x-1-{role}-{index}") for role, index in (("worker", 0), ("master", 0), ("worker", 1))]
    for tree in trees:
        _, role, index = tree["metadata"]["name"].rsplit("-", 2)
        kubeflow = "training.kubeflow.org/replica-"
        tree["metadata"] |= {"annotations": {}, "labels": {f"{kubeflow}type": role, f"{kubeflow}index": index}}
    assert [each.name for each in pods_in(trees)] == ["x-1-master-0", "x-1-worker-0", "x-1-worker-1"]
    assert [each.node for each in pods_in(trees)] == [0, 1, 2]


@pytest.mark.parametrize("text", ["-1", "9" * 30, "٣", "x", "99999999"])
def test_a_rank_that_is_none_is_that_of_no_other_file(text: str):
    assert pods_in([pod(node=text)])[0].node == 0


def test_messages_are_on_one_line_without_control_characters_and_of_bounded_length():
    said = "\x1b[2J\x1b]0;title\x07red\x1b[0m\r\nnext\u202e" + "x" * 10_000
    (found,) = pods_in([pod(phase="Failed", reason="Evicted", message=said)])
    assert found.ended[0].isprintable()
    assert len(found.ended[0]) < 1000
    assert tidy(said).startswith("[2J ]0;title red [0m next x")
    assert len(tidy(said)) == 600


def test_kubectl_s_errors_and_warnings_are_bounded_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    program(tmp_path, monkeypatch, "printf 'Warning: a \\033[31mb\\nWarning: a \\033[31mb\\n' >&2; printf 'x\\xffy'")
    answer = ask({}, "get")
    assert (answer.warnings, answer.text) == (("a [31mb",), "x\ufffdy")
    program(tmp_path, monkeypatch, "printf 'Warning: w\\nError: \\033[31mno\\n' >&2; exit 1")
    with pytest.raises(Refused, match=r"^Error: \[31mno$"):
        kubectl({}, "get")


def test_an_answer_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(calls, "_MOST_BYTES", 2**20)
    program(tmp_path, monkeypatch, "exec yes")
    with pytest.raises(Refused, match="more than 1 MiB"):
        kubectl({}, "get")
    program(tmp_path, monkeypatch, "exec sleep 600")
    begun = time.monotonic()
    with pytest.raises(Refused, match="did not respond"):
        kubectl({}, "get", seconds=0.5)
    assert time.monotonic() - begun < STUCK_SECONDS


@pytest.mark.parametrize("text", ["{", "[" * 100_000, "nothing"])
def test_an_answer_that_is_no_json_is_refused(text: str, tmp_path, monkeypatch):
    (tmp_path / "answer").write_text(text)
    program(tmp_path, monkeypatch, f"cat {tmp_path}/answer")
    with pytest.raises(Refused, match="unexpected output of kubectl"):
        items({}, "pods")


def test_documents_that_are_no_objects_are_left_out():
    assert documents(
        '[1] 3 {"kind": "List", "items": 3} {"kind": "List", "items": [{"a": 1}, 2, null]} {"kind": "Job"}'
    ) == [
        {"a": 1},
        {"kind": "Job"},
    ]


def record(folder: Path, **handle: Any) -> dict[str, Any]:
    """Make a run's directory, and return its handle."""
    made = {**HANDLE, "folder": str(folder), **handle}
    private.make_folder(folder / "run")
    private.make_folder(folder / "logs")
    write_record(
        Record(
            id="x-1", executor="kubernetes", folder=str(folder), host="h", user="me", pid=1, start=1, submitted="",
            nodes=2, devices_per_node=8, handle=made,
        )
    )  # fmt: skip
    return made


# -- the run's directory


@pytest.mark.parametrize("wrong", [{"kind": "cronjob"}, {"kind": ["job"]}, {"name": "-A"}, {"name": 3}, {"name": None}])
def test_a_handle_that_names_no_job_asks_nothing_of_the_cluster(wrong: dict[str, Any], tmp_path, monkeypatch):
    made = cluster(tmp_path, monkeypatch, [])
    handle = {**HANDLE, **wrong}
    observed = EXECUTOR.observe(handle)
    assert "names no job in Kubernetes" in observed.why
    with pytest.raises(CannotStart, match="names no job in Kubernetes"):
        EXECUTOR.stop(handle)
    with pytest.raises(CannotStart, match="names no job in Kubernetes"):
        EXECUTOR.clean(handle, tmp_path)
    assert not made.exists()


def test_the_directory_is_the_one_that_holds_this_run(tmp_path: Path):
    handle = record(tmp_path / "out")
    assert own_folder(handle) == tmp_path / "out"
    assert own_folder({**handle, "name": "y-1"}) is None, "of another run"
    assert own_folder({**handle, "folder": str(tmp_path)}) is None, "holds no run"
    assert own_folder({**handle, "folder": "out"}) is None
    assert own_folder(HANDLE) is None
    (tmp_path / "out/logs").rmdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out/logs").symlink_to(tmp_path / "elsewhere")
    assert own_folder(handle) is None, "a link leads elsewhere"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_nothing_is_written_into_the_directory_of_another_user(tmp_path: Path):
    handle = record(tmp_path / "out")
    os.chown(tmp_path / "out/run", 12345, 12345)
    assert own_folder(handle) is None


def test_a_pod_that_the_cluster_ended_did_not_end_because_of_another_one(tmp_path: Path):
    record(tmp_path)
    trees = [
        pod("x-1-0-a", "0", phase="Failed", containerStatuses=[ended(3, "Error", "2026-01-01T00:00:01Z")]),
        pod("x-1-1-b", "1", phase="Failed", containerStatuses=[ended(137, "Error", "2026-01-01T00:00:02Z")]),
        pod("x-1-2-c", "2", phase="Failed", containerStatuses=[ended(137, "OOMKilled", "2026-01-01T00:00:03Z")]),
    ]
    assert keep_exits(tmp_path, pods_in(trees)) == 3
    assert [(end.node, end.code, end.how) for end in read_exits(tmp_path)] == [
        (0, 3, ""),
        (1, 137, "stopped"),
        (2, 137, ""),
    ]
    assert read_causes(tmp_path / "run/causes/0.2") == ["OOMKilled"]


def test_an_end_by_the_cluster_counts_where_the_node_wrote_another_on_a_shared_volume(tmp_path: Path):
    record(tmp_path)
    (tmp_path / "run/exits").mkdir()
    (tmp_path / "run/exits/0.0").write_text("143 x-1-0-a stopped\n")
    (tmp_path / "run/causes").mkdir()
    (tmp_path / "run/causes/0.0").write_text("cgroup: oom_kill 1\n")
    evicted = {"phase": "Failed", "reason": "Evicted", "message": "low on memory"}
    end = ended(143, "Error", "2026-01-01T00:00:01Z")
    assert keep_exits(tmp_path, pods_in([pod("x-1-0-a", "0", containerStatuses=[end], **evicted)])) == 143
    assert [(end.code, end.how) for end in read_exits(tmp_path)] == [(143, "")]
    causes = read_causes(tmp_path / "run/causes/0.0")
    assert causes == ["cgroup: oom_kill 1", "Error", "Evicted low on memory"]


def test_who_ends_a_pod_is_kept_before_the_pod_is_gone(tmp_path: Path):
    record(tmp_path)
    target = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "by x"}
    keep_disruptions(tmp_path, pods_in([pod("x-1-0-a", "0", phase="Running", conditions=[target])]))
    (tmp_path / "run/exits").mkdir()
    (tmp_path / "run/exits/0.0").write_text("1 x-1-0-a stopped\n")
    keep_exits(tmp_path, [])
    assert [(end.code, end.how) for end in read_exits(tmp_path)] == [(1, "")]
    assert read_causes(tmp_path / "run/causes/0.0") == ["PreemptionByScheduler by x"]


# -- one call for the job and all its pods; events where they do not say why


def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, objects: list[Any], **events: list[Any]) -> Path:
    """A kubectl with these objects and events; it writes its calls into a file, which is returned."""
    calls_file = tmp_path / "calls"
    (tmp_path / "objects").write_text(json.dumps({"kind": "List", "items": objects}))
    for name, found in events.items():
        (tmp_path / f"events-{name.replace('_', '-')}").write_text(json.dumps({"kind": "List", "items": found}))
    body = f"""echo "$*" >>{calls_file}
case "$*" in
  *events*) for word in "$@"; do case $word in involvedObject*) name=${{word#*=}};; esac; done
    cat {tmp_path}/events-$name 2>/dev/null || echo '{{"kind":"List","items":[]}}';;
  *) cat {tmp_path}/objects;;
esac"""
    program(tmp_path, monkeypatch, body)
    return calls_file


def job(**status: Any) -> dict[str, Any]:
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x-1", "uid": "u"}, "status": status}


def event(reason: str, message: str, at: str, kind: str = "Warning") -> dict[str, Any]:
    return {"type": kind, "reason": reason, "message": message, "lastTimestamp": at}


def test_one_call_returns_the_job_and_all_pods(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    made = cluster(tmp_path, monkeypatch, [job(), *(pod(f"x-1-{n}-a", str(n), phase="Running") for n in range(300))])
    found = seen(HANDLE)
    assert (len(found.pods), state_of(HANDLE, found).state) == (300, "running")
    assert len(made.read_text().splitlines()) == 1


def test_the_state_and_the_output_are_of_one_list_of_pods(tmp_path, monkeypatch):
    handle = record(tmp_path / "out")
    made = cluster(tmp_path, monkeypatch, [job(), pod(phase="Running")])
    assert EXECUTOR.observe(handle).state == "running"
    EXECUTOR.fetch(handle)
    assert [line.split()[1] for line in made.read_text().splitlines()] == ["get", "logs"]


def test_a_job_without_pods_waits_for_what_its_newest_warning_says(tmp_path, monkeypatch):
    said = [
        event("FailedCreate", 'pods "x-1-0-b" is forbidden: exceeded quota: gpus', "2026-01-01T00:00:09Z"),
        event("FailedCreate", "old", "2026-01-01T00:00:01Z"),
        event("SuccessfulCreate", "Created pod", "2026-01-01T00:00:10Z", kind="Normal"),
    ]
    cluster(tmp_path, monkeypatch, [job()], x_1=said)
    observed = state_of(HANDLE, seen(HANDLE))
    assert observed.state == "queued"
    assert observed.why.startswith('FailedCreate: pods "x-1-0-b" is forbidden: exceeded quota: gpus')


def test_a_pod_s_event_says_more_than_its_back_off(tmp_path, monkeypatch):
    waiting = {"name": "node", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off"}}}
    said = [event("Failed", 'Failed to pull image "i:1": not found', "2026-01-01T00:00:01Z")]
    cluster(tmp_path, monkeypatch, [job(), pod(containerStatuses=[waiting])], x_1_0_abcde=said)
    assert state_of(HANDLE, seen(HANDLE)).why == 'Failed: Failed to pull image "i:1": not found'


def test_no_event_is_asked_for_where_the_pod_says_why(tmp_path, monkeypatch):
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/5 nodes"}
    made = cluster(tmp_path, monkeypatch, [job(), pod(conditions=[condition])])
    assert state_of(HANDLE, seen(HANDLE)).why == "Unschedulable: 0/5 nodes"
    assert "events" not in made.read_text()


def test_a_run_of_which_some_pods_wait_says_how_many_and_for_what(tmp_path, monkeypatch):
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/5 nodes"}
    cluster(
        tmp_path, monkeypatch, [job(), pod("x-1-0-a", phase="Running"), pod("x-1-1-a", "1", conditions=[condition])]
    )
    observed = state_of(HANDLE, seen(HANDLE))
    assert (observed.state, observed.why) == ("running", "1 of 2 pods wait: Unschedulable: 0/5 nodes")


def test_a_run_of_which_some_pods_are_not_made_says_how_many_and_why(tmp_path, monkeypatch):
    said = [
        event("SuccessfulCreate", "Created pod: x-1-0-a", "2026-01-01T00:00:01Z", kind="Normal"),
        event("FailedCreate", "exceeded quota: gpus", "2026-01-01T00:00:02Z"),
    ]
    made = {**job(), "spec": {"completions": 2}}
    cluster(tmp_path, monkeypatch, [made, pod("x-1-0-a", phase="Running")], x_1=said)
    observed = state_of(HANDLE, seen(HANDLE))
    assert (observed.state, observed.why) == ("running", "1 of 2 pods are not made: FailedCreate: exceeded quota: gpus")
    calls_of = cluster(tmp_path, monkeypatch, [made, *(pod(f"x-1-{n}-a", str(n), phase="Running") for n in (0, 1))])
    calls_of.unlink()
    assert state_of(HANDLE, seen(HANDLE)).why == ""
    assert "events" not in calls_of.read_text(), "nothing is missing"


def test_a_pod_of_a_machine_that_is_gone_is_named_with_what_removes_it(tmp_path, monkeypatch):
    fails = {"type": "FailureTarget", "status": "True", "reason": "BackoffLimitExceeded", "message": "limit"}
    late = pod("x-1-1-a", "1", phase="Running")
    late["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    command = "x-1-1-a should have: where its machine (m0) is gone, kubectl delete pod x-1-1-a --force"
    cluster(tmp_path, monkeypatch, [job(conditions=[fails]), late])
    assert state_of(HANDLE, seen(HANDLE)).why == f"BackoffLimitExceeded: limit; its pods end: {command}"
    cluster(tmp_path, monkeypatch, [late])
    assert state_of(HANDLE, seen(HANDLE)).why == f"its job was deleted, its pods end: {command}"


def test_a_pod_that_vanished_with_its_machine_is_why_the_job_failed(tmp_path, monkeypatch):
    handle = record(tmp_path / "out")
    target = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager", "message": "taint"}
    cluster(tmp_path, monkeypatch, [job(), pod("x-1-1-a", "1", phase="Running", conditions=[target])])
    EXECUTOR.observe(handle)
    failed = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "limit"}
    others = pod("x-1-0-a", "0", phase="Failed", containerStatuses=[ended(143, "Error", "2026-01-01T00:00:09Z")])
    private.make_folder(tmp_path / "out/run/exits")
    private.write(tmp_path / "out/run/exits/0.0", "143 m0 stopped\n")
    cluster(tmp_path, monkeypatch, [job(conditions=[failed]), others])
    assert EXECUTOR.observe(handle).state == "failed"
    found = first_failure(read_record(tmp_path / "out"))
    assert (found.node, found.reason) == (1, "tainted")


def test_a_failed_job_without_an_exit_code_has_the_reason_of_its_events(tmp_path, monkeypatch):
    failed = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "limit"}
    said = [
        event("BackoffLimitExceeded", "limit", "2026-01-01T00:00:09Z"),
        event("FailedCreate", "violates PodSecurity", "2026-01-01T00:00:01Z"),
    ]
    cluster(tmp_path, monkeypatch, [job(conditions=[failed])], x_1=said)
    observed = state_of(HANDLE, seen(HANDLE))
    assert (observed.state, observed.why) == (
        "failed",
        "FailedCreate: violates PodSecurity; BackoffLimitExceeded: limit",
    )


def test_a_failed_job_is_not_explained_by_pods_that_it_could_not_make_before(tmp_path, monkeypatch):
    failed = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "limit"}
    said = [
        event("FailedCreate", "exceeded quota: gpus", "2026-01-01T00:00:01Z"),
        event("SuccessfulCreate", "Created pod: x-1-0-a", "2026-01-01T00:00:02Z", kind="Normal"),
    ]
    cluster(tmp_path, monkeypatch, [job(conditions=[failed])], x_1=said)
    assert state_of(HANDLE, seen(HANDLE)).why == "BackoffLimitExceeded: limit"


def restarted(count: int, state: dict[str, Any]) -> dict[str, Any]:
    last = {"terminated": {"exitCode": 3, "reason": "Error", "finishedAt": "2026-01-01T00:00:01Z"}}
    return pod(
        phase="Running",
        containerStatuses=[{"name": "node", "restartCount": count, "state": state, "lastState": last}],
    )


def test_a_pod_that_is_started_again_alone_says_that_it_waits_and_keeps_its_end(tmp_path, monkeypatch):
    handle = record(tmp_path / "out")
    waits = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 20s restarting failed container=node"}}
    cluster(tmp_path, monkeypatch, [job(), restarted(1, waits), pod("x-1-1-a", "1", phase="Running")])
    observed = EXECUTOR.observe(handle)
    text = "1 of 2 pods wait: CrashLoopBackOff: back-off 20s restarting failed container=node"
    assert (observed.state, observed.why) == ("running", text)
    assert [(end.attempt, end.node, end.code) for end in read_exits(tmp_path / "out")] == [(1, 0, 3)]
    cluster(tmp_path, monkeypatch, [job(), restarted(3, {"running": {}})])
    assert EXECUTOR.observe(handle).why == ""
    assert sorted((end.attempt, end.code) for end in read_exits(tmp_path / "out")) == [(1, 3), (2, 3)]


def test_the_code_of_a_job_whose_pods_are_deleted_is_that_of_the_shared_volume(tmp_path, monkeypatch):
    handle = record(tmp_path / "out")
    failed = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "limit"}
    cluster(tmp_path, monkeypatch, [job(conditions=[failed])])
    for name, text in (("0.0", "143 m0 stopped\n"), ("0.1", "7 m1 \n")):
        private.make_folder(tmp_path / "out/run/exits")
        private.write(tmp_path / "out/run/exits" / name, text)
    assert EXECUTOR.observe(handle).state == "failed"
    assert read_status(tmp_path / "out")["code"] == 7


def test_a_job_that_is_deleted_has_no_state(tmp_path, monkeypatch):
    cluster(tmp_path, monkeypatch, [pod(phase="Failed", containerStatuses=[ended(1, "Error", "2026-01-01T00:00:01Z")])])
    assert state_of(HANDLE, seen(HANDLE)).state == ""


def test_a_job_that_is_deleted_runs_until_its_pods_have_ended(tmp_path, monkeypatch):
    cluster(tmp_path, monkeypatch, [pod(phase="Running")])
    observed = state_of(HANDLE, seen(HANDLE))
    assert (observed.state, observed.why) == ("running", "its job was deleted, its pods end")


def test_events_that_may_not_be_read_are_none(tmp_path, monkeypatch):
    program(tmp_path, monkeypatch, "echo 'Error from server (Forbidden): events is forbidden' >&2; exit 1")
    assert waits_for(HANDLE, job(), []) == ""
