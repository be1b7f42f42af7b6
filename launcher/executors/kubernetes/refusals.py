"""Why a cluster refuses a job, or gives no answer, by kubectl's messages, with the values that the cluster has."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from launcher.executors.kubernetes.kinds import KINDS
from launcher.executors.kubernetes.kubectl import Refused, kubectl
from launcher.executors.refusal import Refusal, values

Where = Mapping[str, Any]
_ASK_SECONDS = 10
# What kubectl puts around the reason, and an advice that turns our validation off.
_AROUND = re.compile(
    r'^error: |error validating "STDIN": |error validating data: |failed to download openapi: |'
    r'error when (creating|patching) "STDIN": |; if you choose to ignore these errors.*?--validate=false'
)


def reason_in(message: str) -> str:
    """Return the reason in a message of kubectl."""
    return " · ".join(dict.fromkeys(_AROUND.sub("", part).strip() for part in message.split(" · ")))


def _listed(*words: str, where: Where | None = None) -> list[str]:
    """Return the names that kubectl lists; none where it fails, or the user may not list them."""
    try:
        text = kubectl(where or {}, *words, "-o", "name", seconds=_ASK_SECONDS)
    except Refused:
        return []
    return [line.rpartition("/")[2] for line in text.splitlines()]


def _contexts(_: Where) -> Iterator[str]:
    yield from values("cluster.context", _listed("config", "get-contexts"))
    yield "export KUBECONFIG=FILE, a kubeconfig of the cluster"


def _reachable(where: Where) -> Iterator[str]:
    yield "once kubectl get namespaces answers"
    yield from _contexts(where)


def _namespaces(where: Where) -> Iterator[str]:
    yield f"kubectl create namespace {where.get('namespace') or 'NAME'}"
    place = {"context": where.get("context")}
    names = [name for name in _listed("get", "namespaces", where=place) if not name.startswith("kube-")]
    yield from values("cluster.namespace", names)


def _kinds(where: Where) -> Iterator[str]:
    """Yield the kinds whose resources the cluster has."""
    try:
        place = {"context": where.get("context")}
        there = set(kubectl(place, "api-resources", "-o", "name", seconds=_ASK_SECONDS).split())
    except Refused:
        there = set()
    for kind in KINDS.values():
        singular, _, group = kind.resource.partition(".")
        if f"{singular}s.{group}" in there:
            yield f"cluster.kind={kind.name}"
    yield "the operator installed in the cluster"


def _accounts(where: Where) -> Iterator[str]:
    yield from values("cluster.service_account", _listed("get", "serviceaccounts", where=where))
    yield "cluster.service_account=null"


def _priorities(where: Where) -> Iterator[str]:
    names = _listed("get", "priorityclasses", where={"context": where.get("context")})
    yield from values("cluster.priority_class", (name for name in names if not name.startswith("system-")))
    yield "cluster.priority_class=null"


def _row(pattern: str, means: str, works: Callable[[Where], Iterable[str]] | str) -> Refusal[Where]:
    find = works if callable(works) else lambda _: (works,)
    return Refusal(sign=re.compile(pattern), means=means, works=find)


# fmt: off
REFUSALS = (
    _row(r"context .* (does not exist|was not found)", "cluster.context is not in the kubeconfig", _contexts),
    # kubectl's server where no kubeconfig names one.
    _row(r"localhost:8080", "no kubeconfig names a cluster (KUBECONFIG, ~/.kube/config)", _contexts),
    _row(r"provide credentials|Unauthorized|[Mm]ust be logged in|getting credentials",
         "the API server does not accept the credentials of the kubeconfig", "after logging in to the cluster again"),
    _row(r"connection refused|no such host|i/o timeout|Unable to connect|no route to host|network is unreachable|"
         r"TLS handshake|x509: |context deadline exceeded|did not respond|was refused - did you specify",
         "the API server cannot be reached", _reachable),
    _row(r'namespaces? "[^"]*" not found', "cluster.namespace does not exist", _namespaces),
    _row(r"no matches for kind|doesn't have a resource type", "the cluster does not have this cluster.kind", _kinds),
    _row(r"serviceaccount \S+ not found", "cluster.service_account does not exist in the namespace", _accounts),
    _row(r"no PriorityClass with name", "cluster.priority_class does not exist", _priorities),
    _row(r"violates PodSecurity", "the namespace forbids pods with these privileges",
         "cluster.pod_security=restricted cluster.run_as_user=1000"),
    _row(r'User "[^"]*" cannot ', "your user may not do this in the namespace",
         "cluster.namespace=NAME of one of yours (kubectl auth can-i create jobs)"),
)
