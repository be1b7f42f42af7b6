"""Of nodes that are down: which requests they could hold once they are up."""

from datetime import datetime
from pathlib import Path

import pytest

from launcher.executors import begin
from launcher.executors.failure import CannotStart
from launcher.executors.slurm.admission import admitted
from launcher.executors.slurm.executor import Request
from launcher.plan import LaunchPlan, Start
from launcher.plan.executor import Place
from tests.executors.test_slurm_state import stubs

# Options of sbatch, and whether two drained nodes of 64 CPUs, 500 GB and 8 A100 could hold them.
CASES = {
    "as many nodes": (["--nodes=2"], True),
    "more nodes": (["--nodes=3"], False),
    "in two words": (["-N", "3"], False),
    "in one word": (["-N3"], False),
    "devices": (["--gres=gpu:8"], True),
    "more devices": (["--gres=gpu:9"], False),
    "devices of their model": (["--gres=gpu:a100:8"], True),
    "devices of another model": (["--gres=gpu:h100:1"], False),
    "memory": (["--mem=400G"], True),
    "more memory": (["--mem=1T"], False),
    "CPUs": (["-c64"], True),
    "more CPUs": (["--cpus-per-task=65"], False),
}


@pytest.mark.parametrize(("options", "fits"), CASES.values(), ids=CASES)
def test_a_request_that_drained_nodes_could_hold_waits(
    options: list[str], fits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    sinfo = 'case "$*" in *%T*) echo "drained|2|n[1-2]|disk" ;; *) echo "2|64|500000|gpu:a100:8(S:0-1)" ;; esac'
    programs = {
        "sbatch": "echo allocation failure: Requested node configuration is not available >&2; exit 1",
        "sinfo": sinfo,
    }
    stubs(tmp_path, programs, monkeypatch)
    options = ["--partition=a", *options]
    if fits:
        assert admitted(options) == [
            "not enough suitable nodes are up: 2 drained (n[1-2]: disk); it is queued until they are"
        ]
    else:
        with pytest.raises(CannotStart, match="Requested node configuration is not available"):
            admitted(options)


@pytest.mark.parametrize(
    "said",
    [
        "Requested nodes are busy",
        "Required partition not available (inactive or drain)",
        "Requested reservation is in use",
    ],
)
def test_what_only_has_to_wait_is_no_refusal(said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    stubs(tmp_path, {"sbatch": f"echo 'allocation failure: {said}' >&2; exit 1", "sinfo": "exit 1"}, monkeypatch)
    (warning,) = admitted(["--nodes=2"])
    assert said in warning


# What sbatch says, and what works: values that this cluster has, or where to look.
REFUSALS = {
    "partition": ("Invalid partition name specified", ("cluster.partition=debug", "cluster.partition=big")),
    "reservation": (
        "Requested reservation is invalid",
        ("cluster.reservation=maintenance", "cluster.reservation=null"),
    ),
    "features": ("Invalid feature specification", ("cluster.constraint=a100", "cluster.constraint=nvlink")),
    "size": ("Requested node configuration is not available", ("within partition debug: 2 nodes, each 16 CPUs",)),
    "option": ("sbatch: unrecognized option '--foo=1'", ("an option of: sbatch --help",)),
    "controller": ("Unable to contact slurm controller (connect failure)", ("once scontrol ping says UP",)),
    "no configuration": ("cannot stat file /nowhere", ("export SLURM_CONF=FILE",)),
    "account": ("Invalid account or account/partition combination specified", ("sacctmgr show associations",)),
}
SINFO = """case "$*" in
  *"%f"*) echo a100,nvlink ;;
  *"%G"*) echo "debug|2|16|20000|gpu:8" ;;
  *"%R"*) echo debug; echo big ;;
esac"""


@pytest.mark.parametrize(("said", "works"), REFUSALS.values(), ids=REFUSALS)
def test_a_refusal_says_what_this_cluster_would_accept(
    said: str, works: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    programs = {
        "sbatch": f'echo "{said}" >&2; exit 1',
        "sinfo": SINFO,
        "scontrol": "echo ReservationName=maintenance StartTime=now",
    }
    stubs(tmp_path, programs, monkeypatch)
    with pytest.raises(CannotStart) as caught:
        admitted(["--nodes=2"])
    assert said in caught.value.reason
    for text in works:
        assert any(text in each for each in caught.value.works), caught.value.works


def test_a_message_that_is_not_known_is_passed_on_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    stubs(tmp_path, {"sbatch": "echo a plug-in of this site says no >&2; exit 1"}, monkeypatch)
    with pytest.raises(CannotStart) as caught:
        admitted(["--nodes=2"])
    assert str(caught.value) == "Slurm refuses the job: a plug-in of this site says no"


LISTED = {
    "it was submitted": ("17|{now}|{script}\\n16|2026-01-01T00:00:00|{script}", "17"),
    "only an earlier job": ("16|2026-01-01T00:00:00|{script}", ""),
    "another job": ("17|{now}|/elsewhere/run/job.sbatch", ""),
}


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "job"), LISTED.values(), ids=LISTED)
def test_a_submission_without_an_answer_is_looked_for_before_it_counts_as_failed(
    rows: str, job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    now = datetime.now().isoformat(timespec="seconds")
    listed = rows.format(now=now, script=f"{tmp_path}/run/job.sbatch")
    stubs(tmp_path, {"sbatch": "exec sleep 5", "squeue": f"printf '{listed}\\n'"}, monkeypatch)
    monkeypatch.setattr(begin, "_SUBMIT_SECONDS", 1)
    monkeypatch.setattr(begin, "_LOOK_SECONDS", 0)
    plan = LaunchPlan(nodes=(), start=Start(executor="slurm", settings=Request()))
    place = Place(id="x-1", folder=str(tmp_path), launch_dir="/")
    if job:
        assert begin.submit_one(plan, place).handle == {"job": job}
    else:
        with pytest.raises(CannotStart, match="did not answer within 1 s, and the job is not in the queue"):
            begin.submit_one(plan, place)
