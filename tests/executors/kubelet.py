"""Nodes for the API server of tests: pods that the scheduler binds to them run as processes of this machine.

Stands for the kubelet and a container runtime: heartbeats, pod status, grace periods, out-of-memory kills, image errors
and logs (through the API server). Everything else of a cluster is Kubernetes' own. Pods share this machine's files, as
they have no image; the image `example.invalid/missing` cannot be pulled.
"""

import contextlib
import datetime
import http.client
import json
import os
import signal
import ssl
import subprocess
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlparse

from tests.executors.api_server import free_port
from tests.waiting import STUCK_SECONDS

Tree = dict[str, Any]
MISSING = "example.invalid/missing"
_POD = """set -e
hostname "$0"
while [ "$1" != -- ]; do mkdir -p "$2"; mount --bind "$1" "$2"; shift 2; done
shift
exec "$@"
"""
_MEMORY = Path("/sys/fs/cgroup/memory")
_BEAT_SECONDS = 2
# Before a container is started again; twice as long each time. A real kubelet begins with 10 s.
_RESTART_SECONDS = 3
# What unshare(1) of util-linux says, with exit code 1, where SIGKILL ended the pod's first process.
_FIRST_KILLED = b"unshare: sigprocmask unblock failed"


class Api:
    """The API server, as its administrator."""

    def __init__(self, port: int, token: str = "admin") -> None:
        self.port, self.token = port, token

    def __call__(self, method: str, path: str, body: object = None, kind: str = "application/json") -> Tree:
        """Make a request; return the answer, {} where there is none or it is refused."""
        context = ssl._create_unverified_context()
        try:
            connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=context, timeout=20)
            head = {"Authorization": f"Bearer {self.token}", "Content-Type": kind}
            connection.request(method, path, None if body is None else json.dumps(body), head)
            answer = connection.getresponse()
            text = answer.read()
            connection.close()
            tree = json.loads(text) if text else {}
        except (OSError, ValueError, http.client.HTTPException):
            return {}
        return tree if isinstance(tree, dict) and answer.status < 300 else {}

    def merge(self, path: str, body: object) -> Tree:
        """Patch an object."""
        return self("PATCH", path, body, "application/merge-patch+json")


def now(at: float | None = None) -> str:
    """Return a time as Kubernetes writes it."""
    when = datetime.datetime.fromtimestamp(time.time() if at is None else at, datetime.UTC)
    return when.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class Pod:
    """A pod that is bound to one of the nodes."""

    def __init__(self, tree: Tree, folder: Path) -> None:
        meta = tree["metadata"]
        self.space, self.name, self.uid = meta["namespace"], meta["name"], meta["uid"]
        self.path = f"/api/v1/namespaces/{self.space}/pods/{self.name}"
        self.folder = folder / self.uid
        self.folder.mkdir(parents=True, exist_ok=True)
        self.tree, self.process = tree, None  # type: tuple[Tree, subprocess.Popen[bytes] | None]
        self.killed = 0.0
        self.over = self.first_killed = False
        self.restarts, self.again_at = 0, 0.0
        self.last: Tree = {}
        # Lines of the log before those of the container, and before those of the one that it replaced.
        self.first_line = self.line_before = 0
        self.begun = time.time()
        self.memory: Path | None = None

    @property
    def node(self) -> str:
        """The node's name."""
        return str(self.tree["spec"]["nodeName"])

    def first(self) -> int | None:
        """Return the first process of the container, as this machine counts."""
        if self.process is None or self.process.poll() is not None:
            return None
        with contextlib.suppress(OSError, ValueError):
            children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
            return int(children[0]) if children else None
        return None


class Kubelet:
    """All nodes of a cluster."""

    def __init__(self, port: int, folder: Path, nodes: int = 2) -> None:
        self.api, self.folder = Api(port), folder
        self.names = [f"node{number}" for number in range(nodes)]
        self.dead: set[str] = set()
        self.pods: dict[str, Pod] = {}
        self.stopping = threading.Event()
        self.log_port = free_port()
        self._serve_logs()
        self._beat = 0.0
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    # -- nodes

    def register(self, name: str) -> None:
        """Make a node."""
        self.api("POST", "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        self.dead.discard(name)
        self.heartbeat(name)

    def heartbeat(self, name: str) -> None:
        """Say that a node is ready."""
        size = {"cpu": "64", "memory": "64Gi", "pods": "50", "nvidia.com/gpu": "8", "ephemeral-storage": "100Gi"}
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "lastHeartbeatTime": now(),
            "message": "ready",
        }
        status = {
            "capacity": size,
            "allocatable": size,
            "conditions": [ready],
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self.log_port}},
        }
        self.api.merge(f"/api/v1/nodes/{name}/status", {"status": status})

    def crash(self, name: str) -> None:
        """Let a node die: its processes are gone and nobody says so."""
        self.dead.add(name)
        for pod in self.pods.values():
            if pod.node == name and pod.process is not None:
                pod.process.kill()

    def remove(self, name: str) -> None:
        """Delete a node, as a cloud does once its machine is gone."""
        self.api("DELETE", f"/api/v1/nodes/{name}")

    def stop(self) -> None:
        """End all pods."""
        self.stopping.set()
        self.thread.join(20)
        for pod in self.pods.values():
            if pod.process is not None and pod.process.poll() is None:
                pod.process.kill()
        self.server.shutdown()

    def _run(self) -> None:
        while not self.stopping.is_set():
            with contextlib.suppress(OSError, KeyError, ValueError):
                if time.monotonic() - self._beat > _BEAT_SECONDS:
                    self._beat = time.monotonic()
                    for name in self.names:
                        if name not in self.dead:
                            self.heartbeat(name)
                self._look()
            time.sleep(0.2)

    def _look(self) -> None:
        found = self.api("GET", "/api/v1/pods")
        if "items" not in found:
            return
        for tree in found["items"]:
            node = tree["spec"].get("nodeName", "")
            if node not in self.names or node in self.dead:
                continue
            uid = tree["metadata"]["uid"]
            if uid not in self.pods:
                if tree["status"].get("phase") in ("Succeeded", "Failed"):
                    continue
                self.pods[uid] = Pod(tree, self.folder)
                self._start(self.pods[uid])
            pod = self.pods[uid]
            pod.tree = tree
            if "deletionTimestamp" in tree["metadata"]:
                self._delete(pod)
        for pod in list(self.pods.values()):
            if (
                pod.node not in self.dead
                and not pod.over
                and pod.process is not None
                and pod.process.poll() is not None
            ):
                self._ended(pod)
            if pod.again_at and not pod.killed and time.monotonic() > pod.again_at:
                self._start_again(pod)

    # -- pods

    def _status(self, pod: Pod, phase: str, state: Tree, **more: Any) -> None:
        container = pod.tree["spec"]["containers"][0]
        ready = "running" in state
        own = {
            "name": container["name"],
            "image": container["image"],
            "imageID": container["image"],
            "ready": ready,
            "restartCount": pod.restarts,
            "state": state,
            **({"lastState": {"terminated": pod.last}} if pod.last else {}),
        }
        conditions = [{"type": "Ready", "status": str(ready), "lastTransitionTime": now()}]
        kept = [each for each in pod.tree["status"].get("conditions", ()) if each["type"] != "Ready"]
        status = {"phase": phase, "containerStatuses": [own], "conditions": [*kept, *conditions], **more}
        self.api.merge(f"{pod.path}/status", {"status": status})

    def _start(self, pod: Pod) -> None:
        spec = pod.tree["spec"]
        container = spec["containers"][0]
        if container["image"].startswith(MISSING):
            why = f'Back-off pulling image "{container["image"]}": ErrImagePull: not found'
            self._status(pod, "Pending", {"waiting": {"reason": "ImagePullBackOff", "message": why}})
            return
        environ = {key: os.environ[key] for key in ("PATH", "PYTHONPATH", "HOME") if key in os.environ}
        for each in container.get("env", ()):
            value = self._value(pod, each)
            if value is None:
                continue
            environ[each["name"]] = value
        binds: list[str] = []
        sources = {each["name"]: each for each in spec["volumes"]}
        for mount in container["volumeMounts"]:
            map_of = sources[mount["name"]].get("configMap")
            if map_of is None:
                continue
            place = pod.folder / mount["name"]
            place.mkdir(exist_ok=True)
            found = self.api("GET", f"/api/v1/namespaces/{pod.space}/configmaps/{map_of['name']}")
            for key, text in found.get("data", {}).items():
                (place / key).write_text(text)
            binds += [str(place), mount["mountPath"]]
        words = [
            "unshare",
            "--mount",
            "--uts",
            "--pid",
            "--fork",
            "--mount-proc",
            "--kill-child=KILL",
            "bash",
            "-c",
            _POD,
        ]
        limit = container.get("resources", {}).get("limits", {}).get("memory")
        if limit and limit.endswith("Mi") and _MEMORY.is_dir():
            pod.memory = _MEMORY / f"pod-{pod.uid}"
            pod.memory.mkdir()
            (pod.memory / "memory.limit_in_bytes").write_text(str(int(limit[:-2]) << 20))
            words = ["bash", "-c", 'echo $$ >"$0/cgroup.procs"; exec "$@"', str(pod.memory), *words]
        pod.process = subprocess.Popen(
            [*words, pod.name, *binds, "--", *container["command"]],
            env=environ,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        threading.Thread(target=_keep_log, args=(pod,), daemon=True).start()
        self._status(pod, "Running", {"running": {"startedAt": now()}}, startTime=now(), hostIP="127.0.0.1")

    def _value(self, pod: Pod, entry: Mapping[str, Any]) -> str | None:
        source = entry.get("valueFrom")
        if source is None:
            return str(entry.get("value", ""))
        if "fieldRef" in source:
            path = source["fieldRef"]["fieldPath"]
            for kind in ("annotations", "labels"):
                if path.startswith(f"metadata.{kind}["):
                    return str(pod.tree["metadata"].get(kind, {}).get(path.split("'")[1], ""))
            return str({"metadata.name": pod.name, "spec.nodeName": pod.node}.get(path, "127.0.0.1"))
        return None

    def _ended(self, pod: Pod) -> None:
        assert pod.process is not None
        pod.over = True
        time.sleep(0.3)  # its last lines
        code = -signal.SIGKILL if pod.first_killed else pod.process.returncode
        code = code if code >= 0 else 128 - code
        reason = "Error" if code else "Completed"
        if pod.memory is not None:
            text = (pod.memory / "memory.oom_control").read_text()
            if code and "oom_kill 0" not in text:
                reason = "OOMKilled"
        terminated = {"exitCode": code, "reason": reason, "startedAt": now(pod.begun), "finishedAt": now()}
        if code and pod.tree["spec"]["restartPolicy"] != "Never" and not pod.killed:
            pod.last, pod.over, pod.process = terminated, False, None
            pod.again_at = time.monotonic() + _RESTART_SECONDS * 2**pod.restarts
            message = f"back-off {_RESTART_SECONDS * 2**pod.restarts}s restarting failed container=node pod={pod.name}"
            self._status(pod, "Running", {"waiting": {"reason": "CrashLoopBackOff", "message": message}})
            return
        self._status(pod, "Failed" if code else "Succeeded", {"terminated": terminated})

    def _start_again(self, pod: Pod) -> None:
        pod.again_at, pod.begun = 0.0, time.time()
        pod.restarts += 1
        pod.first_killed = False
        pod.line_before, pod.first_line = pod.first_line, len(_lines(pod))
        self._start(pod)

    def _delete(self, pod: Pod) -> None:
        grace = int(pod.tree["metadata"].get("deletionGracePeriodSeconds", 30))
        running = pod.process is not None and pod.process.poll() is None
        if running and not pod.killed:
            pod.killed = time.monotonic()
            if (first := pod.first()) is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(first, signal.SIGTERM)
        elif running and time.monotonic() - pod.killed > grace:
            assert pod.process is not None
            pod.process.kill()
        elif not running:
            if not pod.over and pod.process is not None:
                self._ended(pod)
            self.api("DELETE", f"{pod.path}?gracePeriodSeconds=0")

    def evict(self, pod: Pod, message: str) -> None:
        """End a pod because the node runs out of something, as the kubelet's eviction manager does."""
        if (first := pod.first()) is not None:
            os.kill(first, signal.SIGTERM)
        assert pod.process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            pod.over = True
            pod.process.wait(timeout=STUCK_SECONDS)
        terminated = {"exitCode": 137, "reason": "Error", "startedAt": now(pod.begun), "finishedAt": now()}
        self._status(pod, "Failed", {"terminated": terminated}, reason="Evicted", message=message)

    # -- logs

    def _serve_logs(self) -> None:
        key, cert = self.folder / "kubelet.key", self.folder / "kubelet.crt"
        self.folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            [
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "rsa:2048",
                "-nodes",
                "-subj",
                "/CN=node",
                "-keyout",
                key,
                "-out",
                cert,
            ],
            check=True,
            capture_output=True,
        )
        kubelet = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                kubelet.answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", self.log_port), Handler)
        self.server.daemon_threads = True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert, key)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        """Answer GET /containerLogs/NAMESPACE/POD/CONTAINER?follow&timestamps&sinceTime&previous."""
        parts, query = urlparse(request.path), parse_qs(urlparse(request.path).query)
        words = parts.path.split("/")
        pods = [
            pod
            for pod in self.pods.values()
            if words[1] == "containerLogs" and (pod.space, pod.name) == tuple(words[2:4])
        ]
        if not pods or pods[-1].node in self.dead:
            request.send_error(404)
            return
        pod = pods[-1]  # pods of Volcano that are started again have the same name
        since, follow = query.get("sinceTime", [""])[0][:19], query.get("follow", ["false"])[0] == "true"
        previous = query.get("previous", ["false"])[0] == "true"
        if previous and not pod.last:
            request.send_error(400)
            return
        request.send_response(200)
        request.send_header("Content-Type", "text/plain")
        request.end_headers()
        told, to = pod.first_line, None
        if previous and not pod.again_at:
            told, to = pod.line_before, pod.first_line
        while True:
            over = not follow or pod.over or pod.process is None or self.stopping.is_set()
            lines = _lines(pod)[:to]
            text = "".join(f"{line}\n" for line in lines[told:] if line[:19] >= since)
            told = len(lines)
            try:
                request.wfile.write(text.encode())
                request.wfile.flush()
            except OSError:
                return
            if over:
                return
            time.sleep(0.2)


def _lines(pod: Pod) -> list[str]:
    """Return what all containers of a pod have printed."""
    log = pod.folder / "log"
    return log.read_text(errors="replace").splitlines() if log.exists() else []


def _keep_log(pod: Pod) -> None:
    """Write a pod's output with the time of each line, as a container runtime does."""
    assert pod.process is not None
    assert pod.process.stdout is not None
    with (pod.folder / "log").open("ab", buffering=0) as log:
        for line in pod.process.stdout:
            if line.startswith(_FIRST_KILLED):
                pod.first_killed = True
                continue
            at = time.time_ns()
            stamp = datetime.datetime.fromtimestamp(at // 10**9, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S")
            log.write(f"{stamp}.{at % 10**9:09d}Z ".encode() + line.rstrip(b"\n") + b"\n")
