"""A Kubernetes API server on this machine: etcd, kube-apiserver and the controllers of jobs.

Binaries are taken from the folder KUBE_APISERVER_BIN (kube-apiserver, kube-controller-manager, kube-scheduler), etcd
and kubectl also from the PATH. Without nodes (kubelet.py) pods stay pending; a test patches their status.
"""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

BINARIES = Path(os.environ.get("KUBE_APISERVER_BIN", "/nowhere"))
_CONTROLLERS = (
    *("job-controller", "resourcequota-controller", "garbage-collector-controller", "serviceaccount-controller"),
    *("ttl-after-finished-controller", "namespace-controller"),
)
# With nodes: those that see a lost node, and end the pods that it had.
_OF_NODES = (
    *("node-lifecycle-controller", "taint-eviction-controller", "pod-garbage-collector-controller"),
    "disruption-controller",
)
_CONFIG = """apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "https://127.0.0.1:{port}", insecure-skip-tls-verify: true}}}}]
users: [{{name: u, user: {{token: admin}}}}]
contexts: [{{name: c, context: {{cluster: c, user: u, namespace: default}}}}]
current-context: c
"""


def lacking(*, nodes: bool = False) -> str:
    """Return why no API server, with nodes also a scheduler, can be started here; "" if they can."""
    if "KUBE_APISERVER_BIN" not in os.environ:
        return "KUBE_APISERVER_BIN names no folder with kube-apiserver and kube-controller-manager"
    needed = ["kube-apiserver", "kube-controller-manager", "etcd", "kubectl", "openssl"]
    needed += ["kube-scheduler"] if nodes else []
    missing = [name for name in needed if program(name) is None]
    return f"{', '.join(missing)}: not in KUBE_APISERVER_BIN and not on the PATH" if missing else ""


def program(name: str) -> str | None:
    """Return the path of a program."""
    own = BINARIES / name
    return str(own) if own.exists() else shutil.which(name)


class ControlPlane:
    """The processes of a cluster with its state in a folder, and its kubeconfig.

    Args:
        nodes: start what pods on nodes need, too; a lost node is seen within seconds.
    """

    def __init__(self, folder: Path, *, nodes: bool = False) -> None:
        etcd, peer, self.port = (free_port() for _ in range(3))
        key, self.config, self.folder = folder / "key.pem", folder / "config", folder
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        (folder / "tokens.csv").write_text('admin,admin,admin,"system:masters"\n')
        self.config.write_text(_CONFIG.format(port=self.port))
        controllers = (*_CONTROLLERS, *(_OF_NODES if nodes else ()))
        self.commands = {
            "etcd": [
                *(f"--data-dir={folder}/etcd", f"--listen-client-urls=http://127.0.0.1:{etcd}"),
                *(f"--advertise-client-urls=http://127.0.0.1:{etcd}", f"--listen-peer-urls=http://127.0.0.1:{peer}"),
            ],
            "kube-apiserver": [
                *(f"--etcd-servers=http://127.0.0.1:{etcd}", f"--secure-port={self.port}"),
                *("--bind-address=127.0.0.1", f"--cert-dir={folder}/certs", "--service-cluster-ip-range=10.0.0.0/24"),
                *(f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}"),
                *("--service-account-issuer=https://127.0.0.1", f"--token-auth-file={folder}/tokens.csv"),
                *("--authorization-mode=RBAC",),
                *(
                    ("--default-unreachable-toleration-seconds=3", "--default-not-ready-toleration-seconds=3")
                    if nodes
                    else ()
                ),
            ],
            "kube-controller-manager": [
                *(f"--kubeconfig={self.config}", f"--service-account-private-key-file={key}"),
                *("--leader-elect=false", "--secure-port=0", f"--controllers={','.join(controllers)}"),
                *(("--node-monitor-grace-period=8s", "--node-monitor-period=2s") if nodes else ()),
            ],
        }
        if nodes:
            self.commands["kube-scheduler"] = [f"--kubeconfig={self.config}", "--leader-elect=false", "--secure-port=0"]
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        """Start a process (again)."""
        with (self.folder / f"{name}.log").open("ab") as log:
            words = [str(program(name)), *self.commands[name]]
            self.processes[name] = subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)
        if name == "kube-apiserver":
            wait_for_server(self.config)

    def kill(self, name: str) -> None:
        """Kill a process."""
        self.processes[name].kill()
        self.processes[name].wait()

    def __enter__(self) -> Self:
        try:
            for name in self.commands:
                self.start(name)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for name in reversed(self.processes):
            self.kill(name)


@contextmanager
def api_server(folder: Path) -> Iterator[Path]:
    """Start a cluster without nodes, and yield its kubeconfig; it ends with the block."""
    with ControlPlane(folder) as made:
        yield made.config


def wait_for_server(config: Path, seconds: float = 300) -> None:
    """Wait until the server answers and has the default service account's namespace."""
    deadline = time.monotonic() + seconds
    words = ["kubectl", f"--kubeconfig={config}", "get", "namespace", "default", "-o", "name"]
    while subprocess.run(words, capture_output=True, check=False).returncode:
        assert time.monotonic() < deadline, "the API server did not start"
        time.sleep(1)


def free_port() -> int:
    """Return a port on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
