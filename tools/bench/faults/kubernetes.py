"""Jobs on a real API server, job controller and scheduler; nodes are processes here (tests/executors/kubelet.py)."""

import contextlib
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from tests.commands import CommandServer
from tests.executors.api_server import ControlPlane
from tests.executors.kubelet import Kubelet, Pod
from tools.bench.faults.case import Case
from tools.bench.faults.stage import NotReached, Stage, text_of, wait_until


class Cluster:
    """An API server with its nodes."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.plane = plane
        self.nodes = Kubelet(plane.port, folder)
        for name in self.nodes.names:
            self.nodes.register(name)

    def kubectl(self, *words: str, text: str | None = None) -> str:
        """Run kubectl as the cluster's administrator."""
        command = ["kubectl", f"--kubeconfig={self.plane.config}", *words]
        return subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=60).stdout


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """Start a cluster with two nodes; it ends with the block."""
    (folder / "plane").mkdir(parents=True)
    with ControlPlane(folder / "plane", nodes=True) as plane:
        made = Cluster(plane, folder / "pods")
        try:
            yield made
        finally:
            made.nodes.stop()


class KubernetesStage(Stage):
    """A job whose pods are in a namespace of its own."""

    PARTS: ClassVar[dict[str, tuple[str, bool]]] = {**Stage.PARTS, "wrapper": ("run/node.sh", True)}

    def __init__(self, folder: Path, server: CommandServer, case: Case, made: Cluster) -> None:
        super().__init__(folder, server, case)
        self.cluster, self.space = made, f"case-{folder.name}"
        made.kubectl("create", "namespace", self.space)
        wait_until(lambda: "default" in self.kubectl("get", "serviceaccount", "-o", "name"), 60, "no service account")

    @property
    def environ(self) -> dict[str, str]:
        """The user's environment."""
        return {**super().environ, "KUBECONFIG": str(self.cluster.plane.config)}

    def by(self) -> list[str]:
        """Return the overrides of the executor."""
        image, volume = "cluster.container=example.invalid/megatron:1", f"host:{self.folder}:{self.folder}"
        return ["cluster=kubernetes", f"cluster.namespace={self.space}", image, f"cluster.volumes=[{volume}]"]

    def waits(self, wait: bool) -> list[str]:
        """Return the word with which the command waits."""
        return ["--wait"] if wait else []

    def log(self, node: int) -> str:
        """Return what a node has printed, as its machine has it."""
        return "".join(text_of(pod.folder / "log") for pod in self.pods(node))

    def node_of(self, environ: dict[str, str]) -> str:
        """Return the node's rank in an environment."""
        return environ.get("NODE_RANK") or environ.get("JOB_COMPLETION_INDEX", "")

    def kubectl(self, *words: str, text: str | None = None) -> str:
        """Run kubectl in the namespace, as an administrator."""
        return self.cluster.kubectl("-n", self.space, *words, text=text)

    def apply(self, tree: dict[str, Any]) -> None:
        """Create an object."""
        self.kubectl("apply", "-f", "-", text=json.dumps(tree))

    def pods(self, node: int = 1) -> list[Pod]:
        """Return the pods of a node of the job."""
        label = "batch.kubernetes.io/job-completion-index"
        own = [pod for pod in self.cluster.nodes.pods.values() if pod.space == self.space]
        return [pod for pod in own if pod.tree["metadata"].get("annotations", {}).get(label) == str(node)]

    def pod(self, node: int = 1) -> Pod:
        """Return the last pod of a node of the job."""
        found = self.pods(node)
        if not found:
            raise NotReached("there is no pod")
        return found[-1]

    def counts(self, line: str) -> bool:
        """Return whether a process would be left by the launcher: the container runtime's own is the cluster's."""
        return True

    def end(self) -> None:
        """Delete the namespace and what it has."""
        self.kubectl("delete", "job,pod", "--all", "--wait=false", "--grace-period=1")
        for name in [*self.cluster.nodes.dead]:
            self.cluster.nodes.register(name)
        super().end()
        for _ in range(30):
            if not self.kubectl("get", "pods", "-o", "name").strip():
                break
            time.sleep(1)
        self.cluster.kubectl("delete", "namespace", self.space, "--wait=false")
