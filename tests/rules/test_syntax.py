"""Text of a job that nothing could take: what is refused, and what is not."""

from typing import Any

import pytest

from launcher.pipeline import judge
from launcher.plan.executor import option_rules
from launcher.rules.engine import load, run
from launcher.rules.registry import RuleContext
from tests.conftest import make_job

load(option_rules())

SLURM = {"executor": "slurm"}
# name: changes of a small job, and what the finding names; "": nothing is found.
ARGS = {
    "a path as name": ({"name": "../../x"}, "name"),
    "a hidden name": ({"name": ".x"}, "name"),
    "an option as name": ({"name": "-x"}, "name"),
    "an empty name": ({"name": ""}, "name"),
    "a name without an end": ({"name": "x" * 200}, "name"),
    "a name of two lines": ({"name": "a\nb"}, "name"),
    "a name with a space": ({"name": "my job"}, ""),
    "the name of a copy": ({"name": "train (1)"}, ""),
    "a name in another script": ({"name": "qwen3_微调"}, ""),
    "an empty folder": ({"output_dir": " "}, "output_dir"),
    "a folder of two lines": ({"output_dir": "a\nb"}, "output_dir"),
    "an empty folder of checkpoints": ({"checkpoint": {"save": "", "save_interval": 5}}, "checkpoint.save"),
    "no devices are asked for": ({"cluster": {**SLURM, "gres": ""}}, ""),
    "minutes": ({"cluster": {**SLURM, "time_limit": "90"}}, ""),
    "days and hours": ({"cluster": {**SLURM, "time_limit": "2-12"}}, ""),
    "no limit": ({"cluster": {**SLURM, "time_limit": "unlimited"}}, ""),
    "hours in words": ({"cluster": {**SLURM, "time_limit": "12h"}}, "cluster.time_limit"),
    "memory of Kubernetes": ({"cluster": {**SLURM, "memory": "500Gi"}}, "cluster.memory"),
    "all memory": ({"cluster": {**SLURM, "memory": "0"}}, ""),
    "two partitions": ({"cluster": {**SLURM, "partition": "a,b"}}, ""),
    "a partition of two words": ({"cluster": {**SLURM, "partition": "a b"}}, "cluster.partition"),
    "an image of three words": ({"cluster": {**SLURM, "container": "a b c"}}, "cluster.container"),
    "an image of Pyxis": ({"cluster": {**SLURM, "container": "nvcr.io#nvidia/pytorch:25.01-py3"}}, ""),
    "the placeholder of an image": ({"cluster": {**SLURM, "container": "IMAGE"}}, "cluster.container"),
    "the placeholder in brackets": ({"cluster": {**SLURM, "container": "<IMAGE>"}}, "cluster.container"),
    "the placeholder of a form": (
        {"cluster": {"executor": "kubernetes", "container": "REGISTRY/IMAGE:TAG"}},
        "cluster.container",
    ),
    "an image with a registry's port and a digest": (
        {"cluster": {"executor": "kubernetes", "container": f"Registry.example:5000/a/b_c:Tag@sha256:{'0' * 64}"}},
        "",
    ),
    "an image of a registry without a dot": ({"cluster": {**SLURM, "container": "docker://user@gitlab#team/x"}}, ""),
    "an image in a variable": ({"cluster": {**SLURM, "container": "${IMAGE}"}}, ""),
    "an image file": ({"cluster": {**SLURM, "container": "/images/pytorch.sqsh"}}, ""),
    "an image of Kubernetes": ({"cluster": {"executor": "kubernetes", "container": "a b"}}, "cluster.container"),
}


@pytest.mark.parametrize("case", ARGS.values(), ids=ARGS)
def test_texts_that_nothing_accepts(case: tuple[dict[str, Any], str]) -> None:
    changes, field = case
    found = [finding for finding in run(RuleContext(job=make_job(changes))) if finding.severity == "error"]
    assert [path for finding in found for path in finding.fields] == ([field] if field else [])


def test_a_scripts_arguments_are_left_to_its_backend() -> None:
    job = make_job({"checkpoint": {"load": ""}})
    assert "WORD-EMPTY" not in {finding.rule for finding in run(RuleContext(job=job, as_written=True))}


# name: changes, overrides that are offered first.
OFFERED = {
    "a name": ({"name": "../../x"}, ["name=x"]),
    "a folder": ({"output_dir": ""}, ["output_dir=null"]),
    "a time": ({"cluster": {**SLURM, "time_limit": "banana"}}, ["cluster.time_limit=12:00:00"]),
    "hours": ({"cluster": {**SLURM, "time_limit": "10h"}}, ["cluster.time_limit=10:00:00"]),
    "days": ({"cluster": {**SLURM, "time_limit": "3 days"}}, ["cluster.time_limit=3-00:00:00"]),
    "a broken size": ({"cluster": {**SLURM, "memory": "1.5T"}}, ["cluster.memory=1536G"]),
    "a size": ({"cluster": {**SLURM, "memory": "500Gi"}}, ["cluster.memory=500G"]),
}


@pytest.mark.parametrize("case", OFFERED.values(), ids=OFFERED)
def test_what_is_offered_is_what_people_use(case: tuple[dict[str, Any], list[str]]) -> None:
    changes, expected = case
    finding = next(each for each in judge(make_job(changes)).findings if each.severity == "error" and each.fixes)
    assert [str(fix) for fix in finding.fixes][: len(expected)] == expected
