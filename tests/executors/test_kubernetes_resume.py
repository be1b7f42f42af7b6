"""`launch resume` on a real API server, job controller and scheduler, whose nodes run pods as processes."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.machines import PROGRAM
from tests.commands import ROOT, CommandServer, Finished
from tests.executors.api_server import lacking
from tests.waiting import wait_until
from tools.bench.faults.kubernetes import Cluster, cluster

WHY = lacking(nodes=True)
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(WHY), reason=WHY or "-")]
KINDS = "job,configmap,service,pod"
# Fails once it has saved; from a checkpoint it trains on. `$GATE` is a file that it waits for.
FAILS_ONCE = """step 1
if [ -z "$load" ]; then [ "$NODE_RANK" = 0 ] || sleep 600; checkpoint 5; step 6; sleep 1; exit 3; fi
[ -s "$load/latest_checkpointed_iteration.txt" ] || exit 9
step 10"""


@pytest.fixture(scope="module")
def kube(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with two nodes for all tests of this module."""
    with cluster(tmp_path_factory.mktemp("kube")) as made:
        yield made


class Site:
    """A folder to launch from, and a namespace of its own."""

    def __init__(self, folder: Path, kube: Cluster, commands: CommandServer, space: str) -> None:
        self.folder, self.kube, self.commands, self.space = folder, kube, commands, space
        kube.kubectl("create", "namespace", space)
        wait_until(lambda: "default" in self.kubectl("get", "serviceaccount", "-o", "name"))
        (folder / "x.jsonl").write_text('{"messages": []}\n' * 200)

    def program(self, body: str) -> None:
        """Write what `megatron` does in the pods; functions `step N` and `checkpoint N` are there."""
        program = self.folder / "env" / "bin" / "megatron"
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(PROGRAM + body + "\n")
        program.chmod(0o755)

    def args(self, *more: str) -> list[str]:
        """Return the overrides of a job that runs the program."""
        job = ["+recipe=qwen3_8b", "backend=megatron", "runtime=native", "data.format=messages", "data.paths=[x.jsonl]"]
        by = ["cluster=kubernetes", "cluster.container=example.invalid/megatron:1", f"cluster.namespace={self.space}"]
        size = ["cluster.nodes=2", "cluster.devices_per_node=8", "estimate.enforce=false", "batch.global_batch_size=96"]
        save = ["checkpoint.save_interval=5", "output_dir=out", f"cluster.volumes=[host:{self.folder}:{self.folder}]"]
        return [*job, *by, *size, *save, f"cluster.python={self.folder}/env/bin/python", *more]

    def launch(self, *args: str, timeout: float = 240, **env: str) -> Finished:
        """Run `launch WORDS` to its end."""
        own = {"PYTHONPATH": str(ROOT), "LAUNCH_HOME": f"{self.folder}.launch", "OMP_NUM_THREADS": "1"}
        environ = {**os.environ, **own, "KUBECONFIG": str(self.kube.plane.config), **env}
        return self.commands.run(args, cwd=self.folder, env=environ, timeout=timeout)

    def status(self) -> Any:
        return self.launch("status", "out", "--json").json

    def log(self, node: int = 0) -> str:
        """Return what a node has printed, as far as it was fetched."""
        file = self.folder / f"out/logs/node{node}.log"
        return file.read_text() if file.exists() else ""

    def kubectl(self, *words: str) -> str:
        """Run kubectl in the namespace, as its administrator."""
        return self.kube.kubectl("-n", self.space, *words)

    def objects(self) -> set[str]:
        """Return the objects of runs."""
        return set(self.kubectl("get", KINDS, "-l", "launch-run", "-o", "name").split())


@pytest.fixture
def site(kube: Cluster, commands: CommandServer, request: pytest.FixtureRequest, tmp_path: Path) -> Site:
    """A site without runs."""
    folder = tmp_path / "here"
    folder.mkdir()
    return Site(folder, kube, commands, f"n{abs(hash(request.node.name)) % 10**8}")


def test_a_failed_job_goes_on_as_new_objects_and_the_old_ones_are_gone(site: Site):
    site.program(FAILS_ONCE)
    assert site.launch("run", *site.args(), "--wait", timeout=300).code == 1
    before = site.objects()
    assert any(name.startswith("job.batch/") for name in before), "a failed job is kept until it is removed or resumed"
    # What the submitter's shell has is part of the pods: it may differ now.
    done = site.launch("resume", "out", "--wait", "--json", timeout=300, WANDB_MODE="offline")
    assert (done.code, done.json["state"], done.json["attempt"]) == (0, "done", 1), done
    shown = site.status()
    assert [(end["attempt"], end["code"]) for end in shown["exits"] if end["node"] == 0] == [(0, 3), (1, 0)]
    assert f"resumes from {site.folder}/out/checkpoints/v0/checkpoint-5" in site.log(1)
    assert "6/10" in site.log(), "the output of the attempt before is kept"
    assert "10/10" in site.log()
    now = site.objects()
    assert not before & now
    owners = site.kubectl("get", "configmap,service", "-l", "launch-run", "-o", "jsonpath={..ownerReferences[*].kind}")
    assert owners.split() == ["Job", "Job"]
    cleaned = site.launch("clean", "out", "--json")
    assert cleaned.json["ok"], cleaned
    wait_until(lambda: site.objects() == set())
    assert site.status()["state"] == "done"


def test_a_run_that_goes_on_is_not_resumed_and_a_stopped_one_is(site: Site):
    site.program(f'[ -n "$load" ] || checkpoint 5; step 6; until [ -e {site.folder}/go ]; do sleep 0.2; done; step 10')
    assert site.launch("run", *site.args()).code == 0
    wait_until(lambda: site.status()["state"] == "running" and "6/10" in site.log())
    refused = site.launch("resume", "out")
    assert refused.code == 1
    assert "works: launch stop qwen3_8b-1, then resume it" in refused.err
    assert site.launch("stop", "out").code == 0
    wait_until(lambda: site.objects() == set())
    assert site.launch("resume", "out").code == 0
    wait_until(lambda: site.log().count("6/10") == 2 or (site.status() and False))
    assert site.status()["state"] == "running"
    assert site.launch("stop", "out").code == 0
    assert site.status()["state"] == "stopped"
    (site.folder / "go").touch()
    done = site.launch("resume", "out", "--wait", "--json", timeout=300)
    assert (done.code, done.json["state"], done.json["attempt"]) == (0, "done", 2), done


def test_a_job_that_the_cluster_rejects_now_is_left_as_it_is(site: Site):
    site.program(FAILS_ONCE)
    assert site.launch("run", *site.args(), "--wait", timeout=300).code == 1
    before = site.objects()
    site.kubectl("label", "namespace", site.space, "pod-security.kubernetes.io/enforce=restricted")
    refused = site.launch("resume", "out")
    assert refused.code == 1
    assert "violates PodSecurity" in refused.err
    assert site.objects() == before
    assert site.status()["state"] == "failed"
    site.kubectl("label", "namespace", site.space, "pod-security.kubernetes.io/enforce-")
    assert site.launch("resume", "out", "--wait", timeout=300).code == 0


def test_a_job_whose_objects_are_gone_is_resumed(site: Site):
    site.program(FAILS_ONCE)
    assert site.launch("run", *site.args(), "--wait", timeout=300).code == 1
    assert site.launch("clean", "out").code == 0
    wait_until(lambda: site.objects() == set())
    assert site.launch("resume", "out", "--wait", timeout=300).code == 0
    assert site.status()["state"] == "done"


def test_a_lost_checkpoint_is_said_and_nothing_is_trained_anew(site: Site):
    site.program(FAILS_ONCE)
    assert site.launch("run", *site.args(), "--wait", timeout=300).code == 1
    shutil.rmtree(site.folder / "out/checkpoints")
    done = site.launch("resume", "out", "--wait", "--json", timeout=300)
    assert (done.code, done.json["exit_code"], done.json["state"]) == (1, 74, "failed"), done
    assert "nothing is trained anew" in site.log()
