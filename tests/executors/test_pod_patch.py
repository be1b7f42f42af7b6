"""`cluster.pod_patch`: merged as kubectl merges it, and refused where Kubernetes or launch has another say."""

import json
import shutil
import subprocess
from typing import Any

import pytest

from launcher.executors.kubernetes.kinds import KINDS
from launcher.executors.kubernetes.pod_fields import TEXT
from launcher.executors.kubernetes.pod_patch import merged, problems
from launcher.job import field_at

TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"launch-run": "x"}},
    "spec": {
        "restartPolicy": "Never",
        "nodeSelector": {"gpu": "h200"},
        "tolerations": [{"key": "spot", "operator": "Exists"}],
        "containers": [
            {
                "name": "node",
                "image": "i:1",
                "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}},
                "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}, {"name": "d", "mountPath": "/data"}],
            }
        ],
        "volumes": [{"name": "shm", "emptyDir": {}}, {"name": "d", "persistentVolumeClaim": {"claimName": "d"}}],
    },
}
AFFINITY = {
    "podAntiAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "podAffinityTerm": {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}}}
        ]
    }
}
SPREAD = [
    {
        "topologyKey": "rack",
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"launch-run": "x"}},
    }
]


def node(**fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "node", **fields}]}}


# What users ask for; all of it is valid.
PATCHES: dict[str, dict[str, Any]] = {
    "affinity": {"spec": {"affinity": AFFINITY}},
    "spread": {"spec": {"topologySpreadConstraints": SPREAD}},
    "labels": {"metadata": {"labels": {"team": "llm"}, "annotations": {"note": "x"}}},
    "a map grows": {"spec": {"nodeSelector": {"zone": "a"}}},
    "a map entry goes": {"spec": {"nodeSelector": {"gpu": None}}},
    "an atomic list is replaced": {"spec": {"tolerations": [{"key": "team", "operator": "Exists"}]}},
    "variables are merged": node(env=[{"name": "B", "value": "3"}, {"name": "C", "value": "4"}]),
    "a variable goes": node(env=[{"name": "A", "$patch": "delete"}]),
    "a field of a mount": node(volumeMounts=[{"mountPath": "/data", "name": "d", "subPath": "me"}]),
    "security": {
        "spec": {
            "securityContext": {"fsGroup": 1000, "supplementalGroups": [1, 2]},
            "containers": [{"name": "node", "securityContext": {"readOnlyRootFilesystem": True}}],
        }
    },
    "a sidecar": {"spec": {"initContainers": [{"name": "logs", "image": "l:1", "restartPolicy": "Always"}]}},
    "an init container": {
        "spec": {
            "initContainers": [
                {"name": "wait", "image": "b", "command": ["sh", "-c", "true"], "resources": {"limits": {"cpu": 1}}}
            ]
        }
    },
    "RDMA": node(resources={"limits": {"rdma/hca": 1}}),
    "a volume": {
        "spec": {
            "volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["RWO"]}}}}],
            "containers": [{"name": "node", "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}]}],
        }
    },
    "a map is replaced": {"spec": {"nodeSelector": {"$patch": "replace", "zone": "a"}}},
    "scheduler": {"spec": {"schedulerName": "kai", "runtimeClassName": "nvidia", "enableServiceLinks": False}},
}


@pytest.mark.parametrize("name", PATCHES)
def test_what_users_ask_for_is_no_mistake(name: str):
    assert list(problems(PATCHES[name], KINDS["job"])) == []


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl on the PATH")
@pytest.mark.parametrize("name", PATCHES)
def test_the_merge_is_kubectl_s(name: str, tmp_path):
    """kubectl puts added list elements first and launch last; their order counts for neither."""
    file = tmp_path / "x.json"
    file.write_text(
        json.dumps({"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "x"}, "template": TEMPLATE})
    )
    words = ["kubectl", "patch", "--local", "-f", file, "--type=strategic", "-o", "json"]
    patch = json.dumps({"template": PATCHES[name]})
    done = subprocess.run([*words, "-p", patch], capture_output=True, text=True, check=True)
    assert ordered(merged(TEMPLATE, PATCHES[name])) == ordered(json.loads(done.stdout)["template"])


def ordered(tree: Any) -> Any:
    """Return a tree in a form in which quantities are texts, lists of objects have no order, and nothing is empty."""
    if isinstance(tree, dict):
        made = {key: ordered(value) for key, value in tree.items() if key != "creationTimestamp"}
        return {key: str(value) if isinstance(value, int) and key != "weight" else value for key, value in made.items()}
    if isinstance(tree, list):
        return sorted((ordered(item) for item in tree), key=lambda item: json.dumps(item, sort_keys=True))
    return tree


# patch, kind, path, what the message says
WRONG: tuple[tuple[dict[str, Any], str, str, str], ...] = (
    ({"spec": {"afinity": {}}}, "job", "spec.afinity", "works: spec.affinity"),
    ({"spec": {"affinity": {"nodeAfinity": {}}}}, "job", "spec.affinity.nodeAfinity", "spec.affinity.nodeAffinity"),
    ({"sepc": {}}, "job", "sepc", "works: spec"),
    (node(volumeMount=[]), "job", "spec.containers[node].volumeMount", "volumeMounts"),
    (node(env={"A": "1"}), "job", "spec.containers[node].env", "works: a list"),
    (node(env=[{"name": "A", "value": 1}]), "job", "spec.containers[node].env[A].value", "quote numbers"),
    ({"spec": {"containers": [{"image": "x"}]}}, "job", "spec.containers[0]", "'name'"),
    ({"spec": {"hostIPC": "yes"}}, "job", "spec.hostIPC", "true or false"),
    ({"spec": {"securityContext": {"runAsUser": "me"}}}, "job", "spec.securityContext.runAsUser", "an integer"),
    ({"spec": "x"}, "job", "spec", "fields of PodSpec"),
    ({"metadata": {"labels": {"launch-run": "y"}}}, "job", "metadata.labels.launch-run", "finds the pods"),
    (node(command=["sleep"]), "job", "spec.containers[node].command", "is set by launch"),
    (node(resources=None), "job", "spec.containers[node].resources", "cannot be removed"),
    (
        node(resources={"limits": {"nvidia.com/gpu": 4}}),
        "job",
        "spec.containers[node].resources.limits.nvidia.com/gpu",
        "cluster.devices_per_node",
    ),
    (node(image="x"), "job", "spec.containers[node].image", "cluster.container"),
    ({"spec": {"restartPolicy": "Always"}}, "job", "spec.restartPolicy", "fault_tolerance.max_restarts"),
    ({"spec": {"hostNetwork": True}}, "job", "spec.hostNetwork", "cluster.host_network"),
    ({"spec": {"volumes": [{"name": "shm", "emptyDir": {}}]}}, "job", "spec.volumes[shm]", "cluster.shm_size"),
    ({"spec": {"volumes": [{"$patch": "replace"}]}}, "job", "spec.volumes", "cannot be removed or replaced"),
    ({"spec": {"$patch": "replace"}}, "job", "spec", "cannot be removed or replaced"),
    (node(**{"$patch": "delete"}), "job", "spec.containers[node]", "cannot be removed"),
    ({"metadata": None}, "job", "metadata", "cannot be removed"),
    ({"metadata": {"labels": {"$patch": "replace"}}}, "job", "metadata.labels", "cannot be removed"),
    ({"spec": None}, "trainjob", "spec", "cannot be removed"),
    ({"spec": {"containers": None}}, "job", "spec.containers", "cannot be removed"),
    ({"spec": {"volumes": None}}, "job", "spec.volumes", "cannot be removed"),
    (node(env=None), "job", "spec.containers[node].env", "cannot be removed"),
    (
        node(volumeMounts=[{"mountPath": "/run/launch/", "name": "x"}]),
        "job",
        "spec.containers[node].volumeMounts[/run/launch/]",
        "the scripts",
    ),
    ({"spec": {"nodeSelector": {"$patch": "merge"}}}, "job", "spec.nodeSelector.$patch", "no directive"),
    ({"spec": {"tolerations": [{"$patch": "delete", "key": "a"}]}}, "job", "spec.tolerations[0]", "as a whole"),
    ({"spec": {"volumes": [{"name": True}]}}, "job", "spec.volumes[0]", "'name'"),
    (node(env=[{"name": "NODE_RANK", "value": "0"}]), "job", "spec.containers[node].env[NODE_RANK]", "rendezvous"),
    (node(env=[{"name": "HF_TOKEN", "value": "hf_x"}]), "job", "spec.containers[node].env[HF_TOKEN]", "cluster.secret"),
    ({"spec": {"containers": [{"name": "logs", "image": "l"}]}}, "job", "spec.containers[logs]", "initContainers"),
    ({"spec": {"$setElementOrder/containers": []}}, "job", "spec.$setElementOrder/containers", "no directive"),
    ({"spec": {"schedulerName": "kai"}}, "trainjob", "spec.schedulerName", "cannot be set by a Kubeflow TrainJob"),
    (node(workingDir="/x"), "trainjob", "spec.containers[node].workingDir", "cannot be set by a Kubeflow TrainJob"),
)


@pytest.mark.parametrize("patch, kind, path, says", WRONG, ids=[f"{path}-{kind}" for _, kind, path, _ in WRONG])
def test_what_cannot_be_patched_is_refused_with_the_reason(patch: dict[str, Any], kind: str, path: str, says: str):
    (found,) = problems(patch, KINDS[kind])
    assert found.path == path
    assert says in found.message


def test_directives_leave_nothing_where_there_is_nothing():
    added = {"name": "a", "image": "x", "env": [{"name": "A", "$patch": "delete"}]}
    patch = {"spec": {"initContainers": [{"$patch": "replace"}, {"name": "b", "$patch": "delete"}, added]}}
    assert merged(TEMPLATE, patch)["spec"]["initContainers"] == [{"name": "a", "image": "x", "env": []}]


def test_the_field_has_the_kinds_of_the_table():
    assert set(field_at("cluster.kind").meta.choices) == set(KINDS)


def test_all_mistakes_are_reported_at_once():
    patch = {"spec": {"a1": 1, "b2": 2, "hostNetwork": True}}
    assert [each.path for each in problems(patch, KINDS["job"])] == ["spec.a1", "spec.b2", "spec.hostNetwork"]


def test_a_patch_that_is_nested_without_end_is_refused():
    tree: dict[str, Any] = {}
    for _ in range(300):
        tree = {"podAffinityTerm": tree}
    deep: dict[str, Any] = {"x": 1}
    for _ in range(100):
        deep = {"properties": deep}
    assert list(problems({"spec": {"affinity": {"nodeAffinity": tree}}}, KINDS["job"]))


def test_the_table_of_fields_is_that_of_the_published_definitions():
    pytest.importorskip("kubernetes_validate")
    from tools.catalogue import pod_fields

    assert pod_fields.module().endswith(f'TEXT = """\\\n{TEXT}"""\n')
