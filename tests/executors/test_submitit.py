"""A sweep through submitit: the plan's own options of sbatch and no others; what it cannot take is refused."""

from pathlib import Path

import pytest

from launcher.executors.failure import CannotStart
from launcher.executors.slurm.executor import Request
from launcher.executors.slurm.submitit import check, command, parameters, submit
from launcher.plan import LaunchPlan, NodePlan, Start
from launcher.plan.executor import Place


def plan(*options: str, executor: str = "slurm", limit: int | None = None) -> LaunchPlan:
    settings = Request(options=options, array_limit=limit) if executor == "slurm" else None
    start = Start(executor=executor, name="tiny", settings=settings)
    return LaunchPlan(nodes=(NodePlan(rank=0, argv=("true",)),), start=start)


def test_the_array_has_the_options_of_the_plan():
    made = parameters(plan("--nodes=2", "--ntasks-per-node=1", "--exclusive", "--time=10", limit=3))
    options = made.pop("additional_parameters")
    assert options.pop("signal").startswith("URG@"), "not SIGUSR2, which would end the nodes' shells"
    assert options == {"nodes": "2", "ntasks_per_node": "1", "exclusive": True, "time": "10"}
    assert (made["array_parallelism"], made["use_srun"], made["time"]) == (3, False, None)


def test_the_batch_script_is_what_submitit_would_submit():
    submitit = pytest.importorskip("submitit.slurm.slurm")
    made = parameters(plan("--nodes=2", "--ntasks-per-node=1", "--gres=gpu:8", "--no-requeue"))
    text = submitit._make_sbatch_string(command="run", folder="/x", map_count=2, **made)
    lines = text.splitlines()
    for line in ("#SBATCH --nodes=2", "#SBATCH --gres=gpu:8", "#SBATCH --no-requeue", "#SBATCH --array=0-1%2"):
        assert line in lines
    assert "run" in lines, "no srun of submitit's own"
    assert not [line for line in lines if "--time" in line or "wckey" in line]


def test_a_task_runs_the_rendered_script_into_the_run_s_own_log():
    place = Place(id="tiny-1", folder="/shared/it's here", launch_dir="/shared")
    assert command(place)[-2:] == ["/shared/it's here/run/job.sbatch", "/shared/it's here/logs/slurm.log"]


REFUSED = {
    "no queue": ([plan(executor="local")], "cluster=slurm"),
    "different machines": ([plan("--nodes=1"), plan("--nodes=2")], "same machines"),
    "one of many clusters": ([plan("--clusters=near,far")], "near,far"),
    "any cluster": ([plan("--clusters=all")], "name one"),
    "short options": ([plan("-C", "fast")], "long options only"),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED.keys())
def test_what_no_array_can_be_is_refused(case):
    plans, says = case
    with pytest.raises(CannotStart, match=says):
        check(plans)


@pytest.mark.parametrize(
    ("options", "environ", "cluster"),
    [((), {}, None), (("--clusters=far",), {}, "far"), ((), {"SBATCH_CLUSTERS": "far"}, "far")],
)
def test_a_job_is_looked_for_on_the_cluster_that_took_it(options, environ, cluster, tmp_path: Path, monkeypatch):
    pytest.importorskip("submitit")
    for name, does in (("sbatch", "echo Submitted batch job 7 on cluster far"), ("srun", "true")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    for name in ("SBATCH_CLUSTERS", "SLURM_CLUSTERS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    runs = [(plan(*options), Place(id=f"tiny-{n}", folder=f"{tmp_path}/{n}", launch_dir="/")) for n in (1, 2)]
    jobs = submit(runs)
    assert [each.handle for each in jobs] == [
        {"job": f"7_{n}", **({"cluster": cluster} if cluster else {})} for n in (0, 1)
    ]
