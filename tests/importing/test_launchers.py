"""What stands before a training script, and what it says of the cluster."""

from pathlib import Path

import pytest

from launcher.importing.cluster import cluster_of
from launcher.importing.invocation import ExcludedCommand, Invocation, recognise
from launcher.importing.read_command import ImportOptions
from launcher.importing.read_file import read_file
from launcher.importing.shell.state import Command

# name: (command, program, first argument of the entry, nodes x devices, address, port)
FOUND = {
    "torchrun": (
        "torchrun --nproc_per_node 8 --nnodes 2 --node_rank 0 --master_addr 10.0.0.1 --master_port 6001 pretrain_gpt.py --lr 1",  # noqa: E501
        ("pretrain_gpt.py", "--lr", 2, 8, "10.0.0.1", 6001),
    ),
    "dashes and equals signs": (
        "torchrun --nproc-per-node=4 --nnodes=1 pretrain_gpt.py --lr 1",
        ("pretrain_gpt.py", "--lr", 1, 4, None, None),
    ),
    "rendezvous endpoint": (
        "torchrun --nnodes 2 --nproc_per_node 8 --rdzv_backend c10d --rdzv_endpoint node0:29400 pretrain_gpt.py --lr 1",
        ("pretrain_gpt.py", "--lr", 2, 8, "node0", 29400),
    ),
    "elastic": (
        "torchrun --nnodes 2:4 --nproc_per_node 8 pretrain_gpt.py --lr 1",
        ("pretrain_gpt.py", "--lr", 2, 8, None, None),
    ),
    "options that nothing sets": (
        "torchrun --nproc_per_node 4 $EXTRA --nnodes 2 $MORE pretrain_gpt.py --lr 1",
        ("pretrain_gpt.py", "--lr", 2, 4, None, None),
    ),
    "python -m": (
        "python3 -u -m torch.distributed.launch --nproc_per_node 8 --use_env dir/pretrain_gpt.py --lr 1",
        ("pretrain_gpt.py", "--lr", 1, 8, None, None),
    ),
    "processes on each node of mpirun": (
        "mpirun -np 8 -N 4 -x PATH python pretrain_gpt.py --lr 1",
        ("pretrain_gpt.py", "--lr", 2, 4, None, None),
    ),
    "processes on each node by their mapping": (
        "mpirun -np 32 --map-by ppr:16:node --bind-to none python pretrain_gpt.py --lr 1",
        ("pretrain_gpt.py", "--lr", 2, 16, None, None),
    ),
    "processes on each node of MPICH": (
        "mpiexec -n 8 -ppn 4 python pretrain_gpt.py --lr 1",
        ("pretrain_gpt.py", "--lr", 2, 4, None, None),
    ),
    "msrun": (
        "msrun --worker_num 16 --local_worker_num 8 --master_addr 10.1.1.1 --master_port=8118 --join True posttrain_gpt.py --lr 1",  # noqa: E501
        ("posttrain_gpt.py", "--lr", 2, 8, "10.1.1.1", 8118),
    ),
    "msrun_launcher.sh": (
        [
            "bash",
            "scripts/msrun_launcher.sh",
            "run_mindformer.py --config x.yaml",
            "16",
            "8",
            "10.1.1.1",
            "8118",
            "0",
            "log",
            "False",
            "300",
        ],
        ("run_mindformer.py", "--config", 2, 8, "10.1.1.1", 8118),
    ),
    "msrun_launcher.sh with options of msrun": (
        [
            *("bash", "msrun_launcher.sh", "run_mindformer.py --config x.yaml", "--worker_num", "16"),
            *("--local_worker_num", "8", "--master_addr", "10.1.1.1", "--master_port", "8118", "--node_rank", "$1"),
        ],
        ("run_mindformer.py", "--config", 2, 8, "10.1.1.1", 8118),
    ),
    "msrun_launcher.sh short": (
        ["bash", "msrun_launcher.sh", "run_mindformer.py --config x.yaml", "4"],
        ("run_mindformer.py", "--config", 1, 4, None, None),
    ),
    "deepspeed": (
        "deepspeed --num_gpus 4 --num_nodes 2 pretrain_gpt.py --lr 1",
        ("pretrain_gpt.py", "--lr", 2, 4, None, None),
    ),
    "accelerate": (
        "accelerate launch --num_processes 16 --num_machines 2 --multi_gpu pretrain_gpt.py --lr 1",
        ("pretrain_gpt.py", "--lr", 2, 8, None, None),
    ),
    "srun": (
        "srun -N 4 --ntasks-per-node=8 python pretrain_gpt.py --lr 1",
        ("pretrain_gpt.py", "--lr", 4, 8, None, None),
    ),
    "wrappers": (
        "nohup env NCCL_DEBUG=INFO numactl --cpunodebind=0 torchrun --nproc_per_node 8 pretrain_gpt.py --lr 1",
        ("pretrain_gpt.py", "--lr", 1, 8, None, None),
    ),
    "program": ("megatron sft --model m", ("megatron sft", "--model", 1, 1, None, None)),
    "program by path": ("/opt/bin/megatron pt --model m", ("megatron pt", "--model", 1, 1, None, None)),
    "module": ("python -m swift.cli._megatron.sft --model m", ("sft.py", "--model", 1, 1, None, None)),
    "blank to fill in": (
        "torchrun --nproc_per_node 8 --master_addr your master ip --nnodes 1 pretrain_gpt.py --lr 1",
        ("pretrain_gpt.py", "--lr", 1, 8, None, None),
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_found(name: str) -> None:
    line, expected = FOUND[name]
    args = line if isinstance(line, list) else line.split()
    found = recognise(Command(words=tuple(args), env={}, where="x.sh:1"))
    assert isinstance(found, Invocation)
    from_environment = found.program.startswith(("megatron", "sft"))
    cluster = cluster_of(found.cluster, found.env, from_environment=from_environment, where="").cluster
    seen = (
        found.program,
        found.argv[0],
        cluster.nodes,
        cluster.devices_per_node,
        cluster.master_addr,
        cluster.master_port,
    )
    assert seen == expected


OTHERS = (
    "swift sft --model m",
    "swift export --model m",
    "megatron export --model m",
    "megatron rlhf --use_ray true --config x.yaml",
    "megatron rlhf --config x.yaml --use_ray",
    "torchrun train_fsdp2.py x.yaml",
    "python pretrain_bert.py --lr 1",
    "torchrun ../tasks/main.py --task WIKITEXT103",
    "python -m tasks.msdp.main --task MSDP-PROMPT",
    "torchrun tools/run_text_generation_server.py --port 5000",
    "python tools/checkpoint/convert.py --model-type GPT",
    "torchrun Megatron-LM/examples/post_training/modelopt/quantize.py --export-quant-cfg fp8",
)


@pytest.mark.parametrize("line", OTHERS)
def test_other_programs_are_named_with_a_reason(line: str) -> None:
    found = recognise(Command(words=tuple(line.split()), env={}, where="x.sh:1"))
    assert isinstance(found, ExcludedCommand)
    assert found.why


@pytest.mark.parametrize(
    "line", ["python train.py", "make all", "pip install megatron-core", "torchrun my_train.py --lr 1"]
)
def test_unknown_commands(line: str) -> None:
    assert recognise(Command(words=tuple(line.split()), env={}, where="")) is None


def test_environment_describes_the_cluster_of_megatron_swift() -> None:
    env = {"NPROC_PER_NODE": "8", "NNODES": "2", "MASTER_ADDR": "10.0.0.7", "MASTER_PORT": "29501", "NODE_RANK": "1"}
    cluster = cluster_of({}, env, from_environment=True, where="").cluster
    assert (cluster.nodes, cluster.devices_per_node, cluster.master_addr, cluster.master_port) == (
        2,
        8,
        "10.0.0.7",
        29501,
    )


def test_world_size_from_elsewhere_wins() -> None:
    cluster = cluster_of({}, {}, from_environment=False, where="", world_size=32).cluster
    assert (cluster.nodes, cluster.devices_per_node) == (4, 8)


def test_unknown_numbers_are_reported_with_the_variable_to_set() -> None:
    from launcher.importing.shell.placeholders import placeholder

    found = cluster_of({"per_node": placeholder("$GPUS")}, {}, from_environment=False, where="x.sh:3")
    assert found.cluster.devices_per_node == 8
    assert "--set GPUS=N" in str(found.warnings[0])


def test_an_unknown_number_of_processes_of_mpirun_is_reported(tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text("mpirun -np $N --npernode $P python pretrain_gpt.py --lr 1e-4\n")
    (found,) = read_file(script, ImportOptions())
    reported = {note.works: note.message for note in found.warnings if "is unknown" in note.message}
    assert reported == {
        ("--set P=N",): "the number of devices per node is unknown ($P)",
        ("--set N=N",): "the number of processes is unknown ($N)",
    }
    (found,) = read_file(script, ImportOptions(), variables={"N": "16", "P": "4"})
    assert (found.job.cluster.nodes, found.job.cluster.devices_per_node) == (4, 4)
    script.write_text("mpirun -np $N torchrun --nnodes 2 --nproc_per_node 4 pretrain_gpt.py --lr 1e-4\n")
    (found,) = read_file(script, ImportOptions())
    assert not [note for note in found.warnings if "is unknown" in note.message]


# name: (words before the program, part of the note, what works)
CONTAINERS = {
    "docker run": (
        "sudo docker run -it --gpus all --rm -v /data:/data -e A=1 --ipc=host nvcr.io/x:1",
        "docker run: image nvcr.io/x:1, mounts /data:/data and variables A: dropped",
        ("cluster.container=nvcr.io/x:1 with cluster=slurm or cluster=kubernetes", "start launch inside it"),
    ),
    "docker run with a file of variables": (
        "docker run --gpus all --env-file prod.env -e WANDB_API_KEY=secret nvcr.io/x:1",
        "docker run: image nvcr.io/x:1 and variables of prod.env, WANDB_API_KEY: dropped",
        ("cluster.container=nvcr.io/x:1 with cluster=slurm or cluster=kubernetes", "start launch inside it"),
    ),
    "enroot": (
        "enroot start --rw -m /d:/d -e NCCL_DEBUG=INFO x.sqsh",
        "enroot start: image x.sqsh, mounts /d:/d and variables NCCL_DEBUG: dropped",
        ("start launch inside it",),
    ),
    "podman exec": ("podman exec -it trainer", "podman exec: container trainer: dropped", ("start launch inside it",)),
    "singularity": (
        "srun -N 2 singularity exec --nv -B /d:/d x.sif",
        "singularity exec: image x.sif and mounts /d:/d: dropped",
        ("start launch inside it",),
    ),
    "apptainer with an image of a registry": (
        "apptainer exec --nv docker://pytorch:2",
        "image docker://pytorch:2: dropped",
        ("cluster.container=pytorch:2 with cluster=slurm or cluster=kubernetes", "start launch inside it"),
    ),
    "kubectl": ("kubectl exec -it pod-0 --", "kubectl exec: pod pod-0: dropped", ("start launch inside it",)),
}


@pytest.mark.parametrize("inner", ["{}", "bash -c 'cd /w && {}'"])
@pytest.mark.parametrize("case", CONTAINERS)
def test_a_container_around_a_training_is_reported(tmp_path: Path, case: str, inner: str) -> None:
    before, message, works = CONTAINERS[case]
    script = tmp_path / "train.sh"
    script.write_text(f"{before} {inner.format('torchrun --nproc_per_node 8 pretrain_gpt.py --lr 1e-4')}\n")
    (found,) = read_file(script, ImportOptions())
    (note,) = [each for each in found.warnings if "the machine itself" in each.message]
    assert message in note.message
    assert (note.where, note.works) == (f"{script}:1", works)
