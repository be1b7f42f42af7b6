"""`-m` for the verbs that start nothing: an answer for every combination, also where some are wrong."""

import pytest

from tests.conftest import Launch

JOB = ("+recipe=qwen3_8b", "backend=megatron")


def test_check_judges_every_combination(launch: Launch):
    done = launch("check", "-m", *JOB, "parallel.tp=2,3", "batch.micro_batch_size=1,0", "--json")
    assert done.code == 2, done
    assert [(row["number"], row["ok"]) for row in done.json] == [(1, True), (2, False), (3, False), (4, False)]
    assert done.json[1]["mistakes"][0]["what"] == "batch.micro_batch_size 0 is below 1"
    assert done.json[2]["overrides"][2:] == ["parallel.tp=3", "batch.micro_batch_size=1"]
    assert any(finding["rule"] == "PAR-TP-HEADS" for finding in done.json[2]["findings"])
    shown = launch("check", "-m", *JOB, "parallel.tp=2,3")
    assert shown.code == 1
    assert "# job 2 of 2: +recipe=qwen3_8b backend=megatron parallel.tp=3" in shown.out
    assert launch("check", "-m", *JOB, "parallel.tp=2,4").code == 0


def test_dry_run_shows_every_combination(launch: Launch, tmp_path):
    done = launch("dry-run", "-m", *JOB, "backend=megatron,mindspeed", "--json", "--render", "out")
    assert done.code == 0, done
    assert [(row["number"], row["backend"]["name"]) for row in done.json] == [(1, "megatron"), (2, "mindspeed")]
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"1", "2"}
    shown = launch("dry-run", "-m", *JOB, "parallel.tp=2,3", "--format", "argv")
    assert shown.code == 1
    assert shown.out.count("megatron pt") == 1, "a refused job has no command"


def test_estimate_answers_for_every_combination(launch: Launch):
    done = launch("estimate", "-m", *JOB, "hardware=h100_80g", "parallel.tp=1,2", "--json")
    assert done.code == 0, done
    times = [row["time"]["step_s"] for row in done.json]
    assert len(times) == 2
    assert times[0] != times[1]


def test_a_sweep_for_submitit_is_shown_before_it_is_submitted(launch: Launch):
    args = ("-m", *JOB, "hydra/launcher=submitit_slurm", "hydra.launcher.partition=big", "parallel.tp=1,2")
    done = launch("dry-run", *args, "--json")
    assert done.code == 0, done
    assert [row["overrides"][2:] for row in done.json] == [
        ["cluster.partition=big", f"parallel.tp={size}", "cluster=slurm"] for size in (1, 2)
    ]


# words, exit code, what is said
REFUSED = {
    "one file for many": (("check", "-m", *JOB, "parallel.tp=1,2", "--fix", "-o", "x.yaml"), "fixes of one job"),
    "one drawing for many": (("estimate", "-m", *JOB, "parallel.tp=1,2", "--plot", "x.html"), "leave out -m"),
    "another launcher": (("run", "-m", *JOB, "hydra/launcher=joblib"), "hydra/launcher=submitit_slurm"),
    "waiting for an array": (("run", "-m", *JOB, "hydra/launcher=submitit_slurm", "--wait"), "launch logs ID -f"),
    "another sweeper": (("run", "-m", *JOB, "hydra/sweeper=optuna"), "launch search"),
    "many values of a setting": (
        ("dry-run", "-m", *JOB, "hydra.launcher.mem_gb=4,8"),
        "cluster.memory=4G,8G (a job for each)",
    ),
    "a range of a setting": (("check", "-m", *JOB, "hydra.launcher.nodes=range(1,3)"), "takes one value"),
    "a list in a setting": (("check", "-m", *JOB, "hydra.launcher.exclude=a,b"), "hydra.launcher.exclude='a,b'"),
    "a folder of Hydra's": (("run", "-m", *JOB, "hydra.sweep.dir=x"), "output_dir=…"),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED.keys())
def test_what_means_nothing_for_many_jobs_is_refused(launch: Launch, case):
    args, says = case
    done = launch(*args)
    assert done.code == 2, done
    assert says in done.err


@pytest.mark.parametrize(
    ("swept", "folders"),
    [
        (["seed=1,2"], ["launch_output/tiny_qwen3", "launch_output/tiny_qwen3-2"]),
        (["seed=1,2", "output_dir=o"], ["o/1", "o/2"]),
        (["output_dir=o1,o2"], ["o1", "o2"]),
    ],
    ids=["none given", "one for all", "one each"],
)
def test_jobs_of_a_sweep_are_shown_in_folders_of_their_own(launch: Launch, swept: list[str], folders: list[str]):
    args = ["+recipe=tiny_qwen3", "backend=megatron", "checkpoint.save_interval=5", *swept]
    jobs = [each["job"] for each in launch("dry-run", "-m", *args, "--json").json]
    assert [job["output_dir"] for job in jobs] == folders
    assert [job["checkpoint"]["save"] for job in jobs] == [f"{folder}/checkpoints" for folder in folders]
