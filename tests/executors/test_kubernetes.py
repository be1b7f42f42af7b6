"""Manifests: what the API servers' own schemas take, of a size that does not grow with what nodes have in common."""

import copy
import json
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from launcher.executors.failure import CannotStart
from launcher.executors.kubernetes.executor import EXECUTOR
from launcher.executors.kubernetes.kinds import KINDS as TABLE
from launcher.executors.kubernetes.kinds import kinds_table
from launcher.executors.kubernetes.objects import name_of
from launcher.executors.kubernetes.pods import pods_of
from launcher.job import Job
from launcher.job.cluster import Cluster
from launcher.job.option import meta_of
from launcher.plan import LaunchPlan, NodePlan, Start, Watch
from launcher.plan.executor import Place, option_rules
from launcher.rules.engine import load, run
from launcher.rules.registry import RuleContext
from tests.conftest import make_job

pytestmark = pytest.mark.slow

load(option_rules())
PLACE = Place(id="Qwen3_8b-2", folder="/shared/it's here/out", launch_dir="/shared/it's here")
SCHEMAS = Path(__file__).parent / "schemas"
KINDS = ("job", "jobset", "trainjob", "volcano", "pytorchjob")
TITLES = {"trainjob": "TrainJob", "jobset": "JobSet", "pytorchjob": "PyTorchJob"}
# Everything that a site may ask for.
SITE: dict[str, Any] = {
    "container": "registry.example/megatron:1",
    "namespace": "training",
    "context": "big",
    "resources": ["rdma/hca_shared=1"],
    "cpus_per_task": 64,
    "memory": "900Gi",
    "volumes": ["pvc:data:/data", "pvc:data:/models:ro", "nfs:10.0.0.1/export/x:/x", "host:/mnt/nvme:/nvme"],
    "container_mounts": ["/etc/site:/etc/site"],
    "work_dir": "/data/me",
    "shm_size": "64Gi",
    "node_selector": ["nvidia.com/gpu.product=H200"],
    "tolerations": ["nvidia.com/gpu:NoSchedule", "team=llm:NoExecute", "spot"],
    "service_account": "trainer",
    "image_pull_secrets": ["registry"],
    "queue": "llm",
    "labels": ["team=llm"],
    "annotations": ["note=any words, at all"],
    "capabilities": ["IPC_LOCK"],
    "time_limit": "2-12:00:00",
}


def job_of(kind: str, nodes: int = 2, device: str = "cuda", **cluster: object) -> Job:
    words = {
        "executor": "kubernetes",
        "kind": kind,
        "master_addr": None,
        "nodes": nodes,
        "devices_per_node": 8,
        **cluster,
    }
    known = {key: tuple(value) if isinstance(value, list) else value for key, value in words.items()}
    return make_job({"cluster": known, "hardware": {"device": device}})


def plan(
    kind: str, nodes: int = 2, *, max_restarts: int = 0, hang: float | None = None, words: int = 1, **cluster: Any
) -> LaunchPlan:
    job = job_of(kind, nodes, **{"container": "i:1", **cluster})

    def node(rank: int, *more: str) -> NodePlan:
        line = ("torchrun", "--node_rank", str(rank), "--master_addr", "${MASTER_ADDR}", "--master_port", "20001")
        pattern = ("--pattern", "([0]*3+[1]*58)" * words)
        return NodePlan(rank=rank, argv=(*line, "${MEGATRON_LM_PATH}/x.py", "${WANDB_API_KEY}", *pattern, *more))

    return LaunchPlan(
        nodes=tuple(node(rank) for rank in range(nodes)),
        output_dir="out",
        start=Start(
            executor="kubernetes",
            name="x",
            devices_per_node=8,
            max_restarts=max_restarts,
            hang_seconds=hang,
            settings=pods_of(job, native=True),
        ),
        resume=LaunchPlan(nodes=tuple(node(rank, "--load", "${LAUNCH_RESUME}") for rank in range(nodes))),
        watch=Watch(checkpoints="out/checkpoints", trackers=(("", "latest"),), iteration_line="iteration +[0-9]+"),
    )


def manifest(*args: Any, **more: Any) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(EXECUTOR.render(plan(*args, **more), PLACE)[-1].content))


def faults(tree: dict[str, Any], schema: dict[str, Any]) -> list[str]:
    """Return what a CRD's schema says against an object; like the API server with strict fields, unknown ones too."""
    jsonschema = pytest.importorskip("jsonschema")
    errors = jsonschema.Draft202012Validator(strict(schema)).iter_errors(tree)
    return [f"{'.'.join(map(str, error.absolute_path))}: {error.message}" for error in errors]


def strict(schema: Any) -> Any:
    if isinstance(schema, list):
        return [strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: strict(value) for key, value in schema.items()}
    if schema.get("x-kubernetes-int-or-string"):
        made.pop("anyOf", None)
        made["type"] = ["integer", "string"]
    if isinstance(schema.get("properties"), dict) and "type" in schema and schema["properties"]:
        made.setdefault("additionalProperties", bool(schema.get("x-kubernetes-preserve-unknown-fields")))
    return made


def check(tree: dict[str, Any]) -> list[str]:
    group = tree["apiVersion"].partition("/")[0]
    own = {kind.group: kind.name for kind in TABLE.values() if kind.name != "job"}.get(group)
    if own is not None:
        inside = [
            {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}, **each["template"]}
            for each in tree["spec"].get("replicatedJobs", ())
        ]
        inside += [
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": each["template"]["spec"]}
            for each in tree["spec"].get("pytorchReplicaSpecs", {}).values()
        ]
        found = [text for job in inside for text in check(job)]
        return [*faults(tree, json.loads((SCHEMAS / f"{own}.json").read_text())), *found]
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    try:
        kubernetes_validate.validate(tree, kubernetes_validate.latest_version(), strict=True)
    except kubernetes_validate.ValidationError as error:
        return [error.message]
    return []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("site", [{}, SITE], ids=["plain", "everything"])
def test_manifests_are_what_the_published_schemas_take(kind, site):
    made = manifest(kind, **site)
    assert [tree["kind"] for tree in made][-1] == TITLES.get(kind, "Job")
    assert {f"{tree['kind']}: {text}" for tree in made for text in check(tree)} == set()


@pytest.mark.parametrize("kind", ["job", "jobset", "volcano", "pytorchjob"])
def test_pods_on_the_node_s_network_or_of_a_priority_are_taken_too(kind):
    made = manifest(kind, host_network=True, priority_class="high", device="npu", rank_table=kind == "volcano")
    assert [text for tree in made for text in check(tree)] == []


@pytest.mark.parametrize("kind", KINDS)
def test_the_check_finds_a_misspelt_field(kind):
    """The tests above would be worth nothing if it did not."""
    tree = copy.deepcopy(manifest(kind)[-1])
    tree["spec"]["completionMod"] = "Indexed"
    assert "completionMod" in " ".join(check(tree))


def pod_of(tree: dict[str, Any]) -> dict[str, Any]:
    spec = tree["spec"]
    if "tasks" in spec:
        return spec["tasks"][0]["template"]["spec"]  # type: ignore[no-any-return]
    if "runtimePatches" in spec:
        runtime = spec["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"][0]
        pod = runtime["template"]["spec"]["template"]["spec"]
        trainer = {**spec["trainer"], "resources": spec["trainer"].get("resourcesPerNode")}
        return {**pod, "containers": [{**pod["containers"][0], **trainer}]}
    if "pytorchReplicaSpecs" in spec:
        return spec["pytorchReplicaSpecs"]["Master"]["template"]["spec"]  # type: ignore[no-any-return]
    if "replicatedJobs" in spec:
        return spec["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]  # type: ignore[no-any-return]
    return spec["template"]["spec"]  # type: ignore[no-any-return]


@pytest.mark.parametrize("kind", KINDS)
def test_a_site_s_wishes_reach_the_pods(kind):
    job = manifest(kind, **SITE)[-1]
    pod = pod_of(job)
    (container,) = pod["containers"]
    assert job["metadata"]["namespace"] == "training"
    assert container["image"] == "registry.example/megatron:1"
    limits = container["resources"]["limits"]
    assert limits == {"nvidia.com/gpu": "8", "rdma/hca_shared": "1", "memory": "900Gi"}
    assert container["resources"]["requests"]["cpu"] == "64"
    assert pod["nodeSelector"] == {"nvidia.com/gpu.product": "H200"}
    assert {"key": "team", "operator": "Equal", "value": "llm", "effect": "NoExecute"} in pod["tolerations"]
    assert {"key": "spot", "operator": "Exists"} in pod["tolerations"]
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    assert container["securityContext"] == {"capabilities": {"add": ["IPC_LOCK"]}}
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    assert mounts["/models"]["readOnly"]
    assert mounts["/models"]["name"] == mounts["/data"]["name"], "one claim is one volume"
    assert {"/run/launch", "/dev/shm", "/x", "/nvme", "/etc/site"} < set(mounts)
    queue = job["spec"]["queue"] if kind == "volcano" else job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"]
    assert queue == "llm"
    assert "216000" in json.dumps(job)


@pytest.mark.parametrize("kind", KINDS)
def test_secrets_are_references_and_other_variables_are_handed_on(kind, monkeypatch):
    for name in ("WANDB_API_KEY", "HF_TOKEN", "MEGATRON_LM_PATH"):
        monkeypatch.setenv(name, f"value-of-{name}")
    made = plan(kind)
    files = EXECUTOR.render(made, PLACE)
    assert "value-of-HF_TOKEN" not in "".join(file.content for file in files)
    assert "value-of-WANDB_API_KEY" not in "".join(file.content for file in files)
    env = {each["name"]: each for each in pod_of(manifest(kind)[-1])["containers"][0]["env"]}
    reference = {"name": "launch-secrets", "key": "WANDB_API_KEY", "optional": False}
    assert env["WANDB_API_KEY"]["valueFrom"] == {"secretKeyRef": reference}, "the plan needs it"
    assert env["HF_TOKEN"]["valueFrom"]["secretKeyRef"]["optional"], "libraries may read it"
    assert env["MEGATRON_LM_PATH"] == {"name": "MEGATRON_LM_PATH", "value": "value-of-MEGATRON_LM_PATH"}


def test_ascend_s_rank_table_is_the_controller_s_configmap():
    rings, job = manifest("volcano", device="npu", rank_table=True)[1:]
    assert rings["metadata"]["name"] == f"rings-config-{job['metadata']['name']}"
    assert rings["metadata"]["labels"]["ring-controller.atlas"] == "ascend-910"
    pod = pod_of(job)
    assert pod["containers"][0]["resources"]["limits"] == {"huawei.com/Ascend910": "8"}
    assert {"name": "RANK_TABLE_FILE", "value": "/user/serverid/devindex/config/hccl.json"} in pod["containers"][0][
        "env"
    ]


@pytest.mark.parametrize("restarts", [0, 1, 3])
def test_all_pods_start_again_as_often_as_the_job_says(restarts):
    """Volcano fails a job that was killed maxRetry times, so that it needs one more; JobSet counts restarts."""
    volcano = manifest("volcano", max_restarts=restarts)[-1]["spec"]
    assert volcano["maxRetry"] == restarts + 1
    assert volcano["policies"][0]["action"] == ("RestartJob" if restarts else "TerminateJob")
    assert manifest("jobset", max_restarts=restarts)[-1]["spec"]["failurePolicy"]["maxRestarts"] == restarts


def test_a_failure_of_one_pod_ends_its_job_at_once():
    assert manifest("job")[-1]["spec"]["backoffLimit"] == 0
    (job,) = manifest("jobset")[-1]["spec"]["replicatedJobs"]
    assert job["template"]["spec"]["backoffLimit"] == 0
    (rule,) = manifest("jobset", max_restarts=2, time_limit="10")[-1]["spec"]["failurePolicy"]["rules"]
    assert (rule["action"], rule["onJobFailureReasons"]) == ("FailJobSet", ["DeadlineExceeded"])


def test_the_failed_pod_of_a_pytorchjob_is_kept():
    """The training operator (1.9) deletes all pods of a job that exceeds its backoffLimit, 0 too; else what runs."""
    policy = manifest("pytorchjob")[-1]["spec"]["runPolicy"]
    assert "backoffLimit" not in policy
    assert policy["cleanPodPolicy"] == "Running"


@pytest.mark.parametrize("kind", KINDS)
def test_pods_live_as_long_as_their_ranks_may_save(kind):
    given = plan(kind)
    saves = replace(given, start=replace(given.start, save_seconds=300.0))
    made = [list(yaml.safe_load_all(EXECUTOR.render(each, PLACE)[-1].content))[-1] for each in (given, saves)]
    assert [pod_of(tree).get("terminationGracePeriodSeconds") for tree in made] == [75, 375]


@pytest.mark.parametrize("kind", KINDS)
def test_pods_watch_for_hangs_by_themselves(kind):
    files = {Path(file.path).name: file.content for file in EXECUTOR.render(plan(kind, hang=90.0), PLACE)}
    assert "hang_seconds=90" in files["pod.sh"]
    assert "iteration_line='iteration +[0-9]+'" in files["pod.sh"]
    assert files["pod.sh"] in {tree["kind"]: tree for tree in manifest(kind, hang=90.0)}["ConfigMap"]["data"].values()


@pytest.mark.parametrize("kind", KINDS)
def test_size_does_not_grow_with_nodes(kind):
    small, large = (len(EXECUTOR.render(plan(kind, nodes), PLACE)[-1].content) for nodes in (100, 1250))
    assert large - small < 20


def test_scripts_that_no_configmap_holds_are_refused():
    with pytest.raises(CannotStart, match="a ConfigMap holds"):
        EXECUTOR.render(plan("job", words=60_000), PLACE)


def test_names_are_those_of_kubernetes_and_of_one_run():
    names = [name_of(replace(PLACE, id=id)) for id in ("Qwen3_8b-2", "_" * 9, "7b", "x" * 200)]
    assert all(len(name) <= 45 and name == name.lower() and name[0].isalpha() for name in names)
    assert name_of(PLACE) != name_of(replace(PLACE, folder="/another/person"))


# field, words, what the message says
BAD = (
    ("container", None, "names no image"),
    ("volumes", ("data:/data",), "is not a kind of volume"),
    ("volumes", ("pvc:data:data",), "absolute path"),
    ("volumes", ("pvc:My Data:/data",), "is not a name in Kubernetes"),
    ("container_mounts", ("data:/data",), "begins with /"),
    ("tolerations", ("gpu:Never",), "effect 'Never' is unknown"),
    ("node_selector", ("gpu",), "is not NAME=VALUE"),
    ("labels", ("team=a b",), "is not a label"),
    ("labels", ("launch-run=other",), "finds the pods of a run"),
    ("resources", ("rdma/hca=many",), "is not a quantity"),
    ("memory", "500 GB", "is not a quantity"),
    ("shm_size", "half", "is not a quantity"),
    ("namespace", "My_Space", "is not a name"),
    ("image_pull_secrets", ("a/b",), "is not a name"),
    ("time_limit", "tomorrow", "is not a time"),
    ("work_dir", "runs", "is not an absolute folder"),
    ("rank_table", True, "cluster.kind=volcano"),
    ("ttl_after_finished", "soon", "is not a time"),
    ("pod_patch", {"spec": {"afinity": {}}}, "spec.afinity is not a field of PodSpec; works: spec.affinity"),
    ("volumes", ("pvc:data/../x:/data",), "without .."),
)


@pytest.mark.parametrize("field, words, says", BAD, ids=[f"{field}-{says[:12]}" for field, _, says in BAD])
def test_a_bad_field_is_named(field, words, says):
    found = list(_findings(job_of("job", **{"container": "i:1", field: words})))
    assert [(finding.fields[0], says in finding.message) for finding in found] == [(f"cluster.{field}", True)]


@pytest.mark.parametrize("kind", KINDS)
def test_all_that_a_site_may_ask_for_is_no_mistake(kind):
    assert list(_findings(job_of(kind, **SITE))) == []


@pytest.mark.parametrize("kind, says", [("job", "alone"), ("trainjob", "training runtime"), ("pytorchjob", "alone")])
def test_a_kind_that_cannot_restart_is_refused(kind, says):
    job = job_of(kind, container="i:1")
    job = replace(job, fault_tolerance=replace(job.fault_tolerance, max_restarts=2))
    (finding,) = _findings(job)
    assert says in finding.message
    assert "cluster.kind=jobset" in finding.message


@pytest.mark.parametrize("kind", KINDS)
def test_restarts_where_they_are_possible_and_hangs_everywhere_are_no_mistake(kind):
    job = job_of(kind, container="i:1")
    restarts = 2 if kind in ("jobset", "volcano") else 0
    job = replace(job, fault_tolerance=replace(job.fault_tolerance, max_restarts=restarts, hang_minutes=5.0))
    assert list(_findings(job)) == []


def test_the_table_of_kinds_and_the_field_name_the_same_kinds():
    assert tuple(TABLE) == KINDS
    assert tuple(TABLE) == meta_of({field.name: field for field in fields(Cluster)}["kind"]).choices


def test_the_documented_table_of_kinds_is_the_program_s():
    assert kinds_table() in (Path(__file__).parents[2] / "docs/running.md").read_text(encoding="utf-8")


# -- the patch, the security profile, and the time to live

PATCH: dict[str, Any] = {
    "metadata": {"labels": {"rack": "a"}},
    "spec": {
        "affinity": {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"team": "llm"}}}
                ]
            }
        },
        "containers": [{"name": "node", "env": [{"name": "NCCL_DEBUG", "value": "INFO"}]}],
    },
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_patch_reaches_the_pods_of_every_kind(kind):
    made = manifest(kind, **SITE, pod_patch=PATCH)
    assert {text for tree in made for text in check(tree)} == set()
    pod = pod_of(made[-1])
    assert pod["affinity"] == PATCH["spec"]["affinity"]
    (container,) = pod["containers"]
    assert {"name": "NCCL_DEBUG", "value": "INFO"} in container["env"]
    assert container["image"] == "registry.example/megatron:1"
    assert '"rack": "a"' in json.dumps(made[-1])


@pytest.mark.parametrize("kind", ["job", "jobset", "volcano", "pytorchjob"])
def test_sidecars_and_init_containers_are_patched_in(kind):
    extra = [
        {"name": "logs", "image": "l:1", "restartPolicy": "Always"},
        {"name": "wait", "image": "w:1", "command": ["true"]},
    ]
    patch = {"spec": {"initContainers": extra, "topologySpreadConstraints": SPREAD}}
    made = manifest(kind, pod_patch=patch)
    assert {text for tree in made for text in check(tree)} == set()
    assert pod_of(made[-1])["initContainers"] == extra


SPREAD = [{"topologyKey": "rack", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}]


@pytest.mark.parametrize("kind", KINDS)
def test_pods_of_the_restricted_profile(kind):
    made = manifest(kind, pod_security="restricted", run_as_user=1000, volumes=["pvc:data/me:/data"])
    assert {text for tree in made for text in check(tree)} == set()
    pod = pod_of(made[-1])
    (container,) = pod["containers"]
    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
        "runAsUser": 1000,
    }
    assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    assert mounts["/data"]["subPath"] == "me"


FORBIDDEN: tuple[tuple[str, Any], ...] = (
    ("host_network", True),
    ("run_as_user", 0),
    ("capabilities", ("IPC_LOCK",)),
    ("volumes", ("host:/mnt:/mnt",)),
    ("container_mounts", ("/mnt:/mnt",)),
)


@pytest.mark.parametrize("field, value", FORBIDDEN, ids=[field for field, _ in FORBIDDEN])
def test_what_the_restricted_profile_forbids_is_named(field, value):
    job = job_of("job", container="i:1", pod_security="restricted", **{field: value})
    assert [finding.fields[0] for finding in _findings(job)] == [f"cluster.{field}"]


@pytest.mark.parametrize("kind", KINDS)
def test_an_ended_job_is_deleted_after_its_time(kind):
    if kind == "trainjob":
        (finding,) = _findings(job_of(kind, container="i:1", ttl_after_finished="60"))
        assert "belongs in the cluster's training runtime" in finding.message
        return
    job = manifest(kind, ttl_after_finished="1-00:00:00")[-1]
    assert check(job) == []
    assert '"ttlSecondsAfterFinished": 86400' in json.dumps(job)
    assert "ttlSecondsAfterFinished" not in json.dumps(manifest(kind)[-1])


@pytest.mark.parametrize("nodes", [1, 3])
def test_a_pytorchjob_has_one_master_and_the_others_are_workers(nodes):
    job = manifest("pytorchjob", nodes)[-1]
    assert check(job) == []
    roles = job["spec"]["pytorchReplicaSpecs"]
    assert sum(role["replicas"] for role in roles.values()) == nodes
    assert roles["Master"]["replicas"] == 1
    assert {each["name"] for role in roles.values() for each in role["template"]["spec"]["containers"]} == {"pytorch"}


def _findings(job: Job) -> Iterator[Any]:
    return (finding for finding in run(RuleContext(job=job)) if finding.rule == "K8S-FIELD")
