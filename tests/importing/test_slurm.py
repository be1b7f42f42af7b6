"""What `#SBATCH` lines and options of sbatch and srun become: fields of the cluster, or a remark; nothing is lost."""

from pathlib import Path
from typing import Any

import pytest

from launcher.api import Imported, compose, import_file
from launcher.importing.job_file import job_yaml
from launcher.job.cluster import Cluster
from launcher.pipeline import judge
from tests.conftest import Launch

RUN = "torchrun --nproc_per_node 8 pretrain_gpt.py --lr 1e-4 --micro-batch-size 1"


def imported(tmp_path: Path, script: str) -> Imported:
    (tmp_path / "x.sh").write_text(script)
    return import_file(tmp_path / "x.sh")


def cluster_fields(result: Imported) -> dict[str, Any]:
    """Return the fields of the cluster that differ from their defaults."""
    cluster, defaults = result.job.cluster, Cluster()
    return {
        name: getattr(cluster, name)
        for name in Cluster.__dataclass_fields__
        if getattr(cluster, name) != getattr(defaults, name)
    }


# name: (lines before or around the training, fields of the cluster, words of a remark)
ASKED = {
    "long options": (
        "#SBATCH --partition=gpu\n#SBATCH --account=lab\n#SBATCH --qos=high\n#SBATCH --time=2-00:00:00\n" + RUN,
        {"partition": "gpu", "account": "lab", "qos": "high", "time_limit": "2-00:00:00"},
        "",
    ),
    "letters": (
        f"#SBATCH -p gpu -A lab\n#SBATCH -t 60 # an hour\n#SBATCH -N4 -C a100 -w n[1-4] -x n9\n{RUN}",
        {
            "nodes": 4,
            "partition": "gpu",
            "account": "lab",
            "time_limit": "60",
            "constraint": "a100",
            "nodelist": "n[1-4]",
            "exclude": "n9",
        },
        "",
    ),
    "devices of a kind": (f"#SBATCH --gres=gpu:h100:8\n{RUN}", {"gres": "gpu:h100:8"}, ""),
    "devices that a run asks for anyway": (f"#SBATCH --gres=gpu:8\n{RUN}", {}, ""),
    "devices of a node": (
        "#SBATCH --nodes=2\n#SBATCH --gpus-per-node=4\nsrun python pretrain_gpt.py --lr 1 --micro-batch-size 1",
        {"nodes": 2, "devices_per_node": 4},
        "",
    ),
    "processors of a node": (
        f"#SBATCH --ntasks-per-node=8\n#SBATCH --cpus-per-task=12\n#SBATCH --mem=0\n#SBATCH --exclusive\n{RUN}",
        {"cpus_per_task": 96, "memory": "0", "exclusive": True},
        "",
    ),
    "no start after a failure": (
        f"#SBATCH --no-requeue --reservation=r\n{RUN}",
        {"requeue": False, "reservation": "r"},
        "",
    ),
    "what has no field": (
        f"#SBATCH --dependency=singleton\n#SBATCH --mail-type END\n#SBATCH --environment=/e.toml\n{RUN}",
        {"sbatch_options": ("--dependency=singleton", "--mail-type=END", "--environment=/e.toml")},
        "",
    ),
    "logs": (f"#SBATCH -o a.log --error=b.log\n{RUN}", {}, "--output=a.log, --error=b.log: dropped"),
    "an array of jobs": (f"#SBATCH --array=0-3\n{RUN}", {}, "--array=0-3: dropped: a sweep replaces it"),
    "a container": (
        f'#SBATCH -N 2\nsrun -l --container-image=i:1 --container-mounts=/a:/b,/c bash -c "cd /b; {RUN}"',
        {"nodes": 2, "container": "i:1", "container_mounts": ("/a:/b", "/c")},
        "srun --label: dropped",
    ),
    "srun alone": (
        f"srun -p gpu -N2 -t 10 -c 16 -u {RUN}",
        {"nodes": 2, "partition": "gpu", "time_limit": "10", "cpus_per_task": 16},
        "srun --unbuffered",
    ),
    "a step on one node": (
        f"#SBATCH -N 4\nsrun -N 1 -n 1 -w n0 -p other {RUN.replace('torchrun', 'torchrun --nnodes 4')}",
        {"nodes": 4},
        "srun --nodelist=n0, srun --partition=other: dropped",
    ),
    "options of sbatch": (f"sbatch -p gpu -N 3 --wrap '{RUN}'", {"nodes": 3, "partition": "gpu"}, ""),
    "a job script on standard input": (
        f"N=2\nsbatch -p gpu <<EOF\n#!/bin/bash\n#SBATCH -N $N\n#SBATCH -t 5\n{RUN}\nEOF\n",
        {"nodes": 2, "partition": "gpu", "time_limit": "5"},
        "",
    ),
    "after the first command": (
        f"#SBATCH -p gpu\nset -x\n#SBATCH --account=lab\n{RUN}",
        {"partition": "gpu"},
        "#SBATCH --account=lab follows the first command",
    ),
}


@pytest.mark.parametrize("name", ASKED)
def test_asked(name: str, tmp_path: Path) -> None:
    script, expected, remark = ASKED[name]
    result = imported(tmp_path, script)
    assert cluster_fields(result) == {"executor": "slurm", **expected}
    notes = "\n".join(str(note) for note in result.warnings)
    assert remark in notes
    assert remark or "dropped" not in notes


def test_a_job_script_that_another_one_submits(tmp_path: Path) -> None:
    (tmp_path / "job.slurm").write_text(f"#!/bin/bash\n#SBATCH -N 4 -p small\nsrun {RUN} --train-iters $SLURM_NNODES\n")
    result = imported(tmp_path, "sbatch --partition=large job.slurm\n")
    assert cluster_fields(result) == {"executor": "slurm", "nodes": 4, "partition": "large"}
    assert result.job.schedule.train_iters == 4


def test_the_name_of_the_job(tmp_path: Path) -> None:
    assert imported(tmp_path, f'#SBATCH --job-name="llama 8b"\n{RUN}').job.name == "llama_8b"
    assert imported(tmp_path, RUN).job.name == "x"


def test_variables_of_the_job(tmp_path: Path) -> None:
    lines = "#SBATCH -J big -N 2 -p gpu --ntasks-per-node=4 -c 6\n"
    script = f"{lines}{RUN} --save out/$SLURM_JOB_NAME-$SLURM_NTASKS-$SLURM_CPUS_PER_TASK-$SLURM_JOB_PARTITION\n"
    assert imported(tmp_path, script).job.checkpoint.save == "out/big-8-6-gpu"


def test_without_slurm_nothing_is_asked(tmp_path: Path) -> None:
    assert cluster_fields(imported(tmp_path, RUN)) == {}


def test_the_job_file_asks_the_same(tmp_path: Path) -> None:
    result = imported(tmp_path, f"#SBATCH -p gpu -t 24:00:00 --gres=gpu:h100:8 -N 2\nsrun --container-image=i:1 {RUN}")
    (tmp_path / "job.yaml").write_text(job_yaml(result, "x.sh", with_version=True))
    job = compose([f"+job={tmp_path}/job.yaml"])
    assert job.cluster == result.job.cluster
    assert "CLUSTER-FIELD" not in {finding.rule for finding in judge(job, fixes=False).findings}


def test_the_report_shows_what_slurm_is_asked_for(launch: Launch, tmp_path: Path) -> None:
    (tmp_path / "x.sh").write_text(f"#SBATCH -p gpu -t 1:00:00\n{RUN}\n")
    assert "cluster: executor=slurm, partition=gpu, time_limit=1:00:00" in launch("import", "x.sh").out


# name: (how inner.sh is started, its training, environment of the job, seed, part of a remark)
EXPORTED = {
    "sbatch": ("sbatch --export=ALL,SEED=5,A=b=c -N 2 inner.sh", "", {"SEED": "5", "A": "b=c"}, 5, ""),
    "in a loop": ("for s in 6; do sbatch --export ALL,SEED=$s inner.sh; done", "", {"SEED": "6"}, 6, ""),
    "its header": ("sbatch inner.sh", "#SBATCH --export=ALL,SEED=7\n", {"SEED": "7"}, 7, ""),
    "srun": ("sbatch --export=ALL,SEED=5 inner.sh", "srun --export=ALL,B=1 ", {"SEED": "5", "B": "1"}, 5, ""),
    "nothing else": ("sbatch --export=SEED=5 inner.sh", "", {"SEED": "5"}, 5, "--export=SEED=5: dropped"),
    "an unknown value": ("sbatch --export=ALL,SEED=$N inner.sh", "SEED=1\n", {}, 1, "--export=ALL,SEED=$N: dropped"),
}


@pytest.mark.parametrize("case", EXPORTED)
def test_exported_variables_reach_the_training(tmp_path: Path, case: str) -> None:
    start, before, environment, seed, remark = EXPORTED[case]
    (tmp_path / "inner.sh").write_text(f"{before}{RUN} --seed $SEED\n")
    result = imported(tmp_path, f"#SBATCH -N 3\n{start}\n")
    assert result.job.seed == seed
    assert dict(result.job.backend.env) == environment
    remarks = [str(note) for note in result.warnings if "--export" in str(note)]
    assert (remark in remarks[0]) if remark else not remarks


def test_variables_of_slurm_stay_out_of_the_job(tmp_path: Path) -> None:
    """A job with other nodes would have the number of the script."""
    (tmp_path / "inner.sh").write_text(f"export SLURM_CPUS_PER_TASK=3\n{RUN} --seed $SLURM_NNODES\n")
    result = imported(tmp_path, "sbatch -N 2 --gpus-per-node=8 --ntasks-per-node=1 inner.sh\n")
    assert (result.job.seed, result.job.cluster.nodes) == (2, 2)
    assert dict(result.job.backend.env) == {"SLURM_CPUS_PER_TASK": "3"}
