"""What a cluster's refusal or silence means for the job, and what would work; checkpoints that pods would lose."""

from pathlib import Path

import pytest

from launcher.executors.failure import CannotStart
from launcher.executors.kubernetes.executor import EXECUTOR
from tests.executors.test_kubernetes import plan
from tests.executors.test_kubernetes_seen import program

OPENAPI = 'error: error validating "STDIN": error validating data: failed to download openapi: '
ADVICE = "; if you choose to ignore these errors, turn validation off with --validate=false"
REFUSED = 'Get "https://10.0.0.1:6443/openapi/v2?timeout=32s": dial tcp 10.0.0.1:6443: connect: connection refused'
# What kubectl writes, the reason, and what works.
MESSAGES = {
    "no kubeconfig": (
        f'{OPENAPI}Get "http://localhost:8080/openapi/v2": dial tcp 127.0.0.1:8080: connection refused{ADVICE}',
        "no kubeconfig names a cluster",
        ("export KUBECONFIG=FILE",),
    ),
    "unreachable": (
        f"{OPENAPI}{REFUSED}{ADVICE}",
        "cannot be reached",
        ("kubectl get namespaces", "cluster.context=prod"),
    ),
    "expired": (
        f"{OPENAPI}the server has asked for the client to provide credentials{ADVICE}",
        "does not accept the credentials",
        ("logging in",),
    ),
    "context": ('error: context "x" does not exist', "cluster.context", ("cluster.context=prod",)),
    "namespace": (
        "\n".join(['Error from server (NotFound): namespaces "team-a" not found'] * 3),
        "cluster.namespace does not exist",
        ("kubectl create namespace team-a", "cluster.namespace=mine"),
    ),
    "kind": (
        'error: no matches for kind "JobSet" in version "jobset.x-k8s.io/v1alpha2"\nensure CRDs are installed first',
        "does not have this cluster.kind",
        ("cluster.kind=job", "cluster.kind=volcano"),
    ),
    "account": (
        'Error from server (Forbidden): serviceaccount "trainer" not found',
        "cluster.service_account",
        ("cluster.service_account=default",),
    ),
    "not allowed": (
        'Error from server (Forbidden): User "me" cannot create resource "jobs" in API group "batch"',
        "your user may not",
        ("cluster.namespace=",),
    ),
}
# A cluster that refuses every object, and lists what it has.
KUBECTL = """case "$*" in
  *get-contexts*) echo prod ;;
  *"get namespaces"*) printf 'namespace/mine\\nnamespace/kube-system\\n' ;;
  *"get serviceaccounts"*) echo serviceaccount/default ;;
  *api-resources*) printf 'pods\\njobs.batch\\njobs.batch.volcano.sh\\n' ;;
  *) cat >/dev/null; cat "$0.says" >&2; exit 1 ;;
esac"""


@pytest.mark.parametrize(("says", "reason", "works"), MESSAGES.values(), ids=MESSAGES)
def test_a_refusal_says_what_would_work(
    says: str, reason: str, works: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    program(tmp_path, monkeypatch, KUBECTL)
    (tmp_path / "bin" / "kubectl.says").write_text(says)
    with pytest.raises(CannotStart) as caught:
        EXECUTOR.preflight(plan("job", namespace="team-a"))
    assert reason in caught.value.reason
    assert "--validate=false" not in caught.value.reason, "advice to turn the validation off"
    assert caught.value.reason.count("not found") <= 1, "said once"
    for text in works:
        assert any(text in each for each in caught.value.works), caught.value.works
    assert "kube-system" not in str(caught.value)


# Volumes of the pods, and what works where none of them holds out/checkpoints.
VOLUMES = {
    "none": ([], "cluster.volumes=[pvc:CLAIM:/data] checkpoint.save=/data/x"),
    "another folder": (["pvc:d:/data"], "checkpoint.save=/data/x"),
    "one that cannot be written": (["pvc:d:/in:ro", "nfs:s/x:/out"], "checkpoint.save=/out/x"),
    "read only": (["pvc:d:/work:ro"], "cluster.volumes=[pvc:CLAIM:/data] checkpoint.save=/data/x"),
    "that of the run": (["pvc:d:/work"], ""),
}


@pytest.mark.parametrize(("volumes", "works"), VOLUMES.values(), ids=VOLUMES)
def test_checkpoints_that_end_with_the_pods_are_a_warning(
    volumes: list[str], works: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    program(tmp_path, monkeypatch, "cat >/dev/null")
    found = EXECUTOR.preflight(plan("job", volumes=volumes, work_dir="/work"))
    assert [text.partition("works: ")[2] for text in found] == ([works] if works else [])
