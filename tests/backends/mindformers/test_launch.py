"""The plan: one file, one msrun per node, and an environment in which the user has the last word."""

import yaml

from backends.mindformers import BACKEND
from backends.mindformers.launch import argv, launch
from launcher.plan import LaunchPlan
from tests.backends.mindformers.jobs import QWEN3_MOE, make, translated, tree


def plan(**changes: object) -> LaunchPlan:
    job = make(tree(**changes))
    return launch(job, translated(job).native)


def option(args: tuple[str, ...], name: str) -> str:
    return args[args.index(name) + 1]


def test_one_node() -> None:
    made = plan()
    (node,) = made.nodes
    args = node.argv
    assert args[0] == "msrun"
    assert (option(args, "--worker_num"), option(args, "--local_worker_num")) == ("8", "8")
    assert option(args, "--master_addr") == "127.0.0.1"
    assert 1024 <= int(option(args, "--master_port")) <= 65535
    assert option(args, "--join") == "True"
    assert args[-3:] == (
        "${MINDFORMERS_PATH}/run_mindformer.py",
        "--config",
        "${LAUNCH_DIR}/launch_output/job/mindformers.yaml",
    )
    assert [file.path for file in made.files] == ["launch_output/job/mindformers.yaml"]
    assert node.workdir == "."
    assert "MINDFORMERS_PATH" in " ".join(made.notes)


def test_many_nodes_meet_at_one_address() -> None:
    made = plan(cluster={"nodes": 4, "master_addr": "10.0.0.1", "master_port": 29001})
    assert [option(node.argv, "--node_rank") for node in made.nodes] == ["0", "1", "2", "3"]
    assert {option(node.argv, "--worker_num") for node in made.nodes} == {"32"}
    assert {(option(n.argv, "--master_addr"), option(n.argv, "--master_port")) for n in made.nodes} == {
        ("10.0.0.1", "29001")
    }
    assert all(node.env["HCCL_CONNECT_TIMEOUT"] == "7200" for node in made.nodes)
    assert len(made.files) == 1


def test_an_unknown_address_stays_a_reference() -> None:
    made = plan(cluster={"nodes": 2})
    assert {option(node.argv, "--master_addr") for node in made.nodes} == {"${MASTER_ADDR}"}


def test_the_environment_follows_the_job_and_the_user_wins() -> None:
    made = plan(
        offload={"optimizer": True},
        fault_tolerance={"timeout_minutes": 30},
        cluster={"nodes": 2},
        backend={"env": {"HCCL_CONNECT_TIMEOUT": "100", "MINE": "1"}},
    )
    assert made.nodes[0].env == {
        "HCCL_CONNECT_TIMEOUT": "100",
        "HCCL_EXEC_TIMEOUT": "1800",
        "MS_DEV_RUNTIME_CONF": "switch_inline:False",
        "MINE": "1",
    }


def test_an_absolute_output_directory_is_used_as_it_is() -> None:
    made = plan(output_dir="/runs/x")
    assert made.nodes[0].argv[-1] == "/runs/x/mindformers.yaml"
    assert made.files[0].path == "/runs/x/mindformers.yaml"
    assert option(made.nodes[0].argv, "--log_dir") == "/runs/x/msrun_log"


def test_the_file_explains_its_arithmetic_and_is_the_same_each_time() -> None:
    first, second = plan(parallel={"tp": 2, "pp": 2}), plan(parallel={"tp": 2, "pp": 2})
    text = first.files[0].content
    assert text == second.files[0].content
    assert "# global batch 128 = batch_size 1 x data_parallel 2 x micro_batch_num 64" in text
    assert "# 8 devices = data_parallel 2 x model_parallel 2 x pipeline_stage 2 x context_parallel 1" in text
    assert yaml.safe_load(text)["parallel_config"]["micro_batch_num"] == 64


def test_the_arguments_of_the_entry_point() -> None:
    assert argv(translated(make(tree())).native) == ["run_mindformer.py", "--config", "mindformers.yaml"]


def test_experts_are_never_split_by_tensor_parallelism() -> None:
    job = make(tree(QWEN3_MOE, parallel={"tp": 4, "sequence_parallel": True}))
    assert BACKEND.prepare(job, "2.1.0").parallel.etp == 1
    dense = make(tree())
    assert BACKEND.prepare(dense, "2.1.0") == dense
