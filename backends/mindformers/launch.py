"""Builds MindFormers' launch plan: one YAML file, and msrun with run_mindformer.py on every node."""

from pathlib import PurePosixPath

from backends.mindformers.environment import ENVIRONMENT
from backends.mindformers.mapping.graph import options_path
from backends.mindformers.yaml_file import render
from launcher.job import Job, output_dir
from launcher.mapping.environment import environment
from launcher.mapping.native import NativeArgs
from launcher.plan.node import NodePlan
from launcher.plan.plan import LaunchPlan, PlanFile
from launcher.plan.rendezvous import master_addr, master_port
from launcher.terminal import counted

# run_mindformer.py is in the source repository only: the wheel does not ship it.
ENTRY = "${MINDFORMERS_PATH}/run_mindformer.py"
CONFIG = "mindformers.yaml"
_CLUSTER_TIMEOUT = 7200  # seconds; scripts/msrun_launcher.sh


def argv(native: NativeArgs) -> list[str]:
    """Return the command line of the entry point; all settings are in the file."""
    return ["run_mindformer.py", "--config", CONFIG]


def config_path(job: Job) -> str:
    """Return the path of the YAML file, relative to the working directory or absolute."""
    return f"{output_dir(job)}/{CONFIG}"


def _config_argument(job: Job) -> str:
    # run_mindformer.py resolves relative paths against its own folder, so it gets an absolute one.
    path = config_path(job)
    return path if PurePosixPath(path).is_absolute() else f"${{LAUNCH_DIR}}/{path}"


def _msrun(job: Job, node_rank: int) -> tuple[str, ...]:
    """Return the command of one node; it waits for all its workers and returns their exit code (`--join`)."""
    cluster = job.cluster
    return (
        "msrun",
        "--worker_num",
        str(cluster.world_size),
        "--local_worker_num",
        str(cluster.devices_per_node),
        "--master_addr",
        master_addr(job),
        "--master_port",
        str(master_port(job)),
        "--node_rank",
        str(node_rank),
        "--log_dir",
        f"{output_dir(job)}/msrun_log",
        "--join",
        "True",
        "--cluster_time_out",
        str(_CLUSTER_TIMEOUT),
        ENTRY,
        "--config",
        _config_argument(job),
    )


def comments(native: NativeArgs) -> dict[str, str]:
    """Return the file's comments on batch and device arithmetic, by section."""
    size, dp = native.get("runner_config.batch_size", 1), native.get("parallel_config.data_parallel", 1)
    tp, pp = native.get("parallel_config.model_parallel", 1), native.get("parallel_config.pipeline_stage", 1)
    cp, parts = native.get("parallel_config.context_parallel", 1), native.get("micro_batch_interleave_num", 1)
    name = "parallel_config.micro_batch_num" if pp > 1 else "runner_config.gradient_accumulation_steps"
    count = native.get(name, 1)
    batch = f"global batch {size * dp * count * parts} = batch_size {size} x data_parallel {dp} x "
    batch += f"{name.rpartition('.')[2]} {count}" + (f" x micro_batch_interleave_num {parts}" if parts > 1 else "")
    world = f"{dp * tp * pp * cp} devices = data_parallel {dp} x model_parallel {tp} x pipeline_stage {pp}"
    models = "older models" if native.get("use_legacy") else "mcore static graph"
    head = f"MindFormers {native.version}, {models}; written by launch"
    return {"": head, "runner_config": batch, "parallel_config": f"{world} x context_parallel {cp}"}


def _options(job: Job, native: NativeArgs) -> tuple[PlanFile, ...]:
    """Return the options file for parallel compilation, if the launcher writes it."""
    path = options_path(job)
    if native.get("context.ascend_config.parallel_speed_up_json_path") != path:
        return ()
    return (PlanFile(path=path, content='{"dataset_broadcast_opt_level": 3}\n'),)


def launch(job: Job, native: NativeArgs) -> LaunchPlan:
    """Return the plan: the YAML file, and one msrun command for each node."""
    env = environment(ENVIRONMENT, job, native)
    cluster = job.cluster
    nodes = tuple(NodePlan(rank=rank, argv=_msrun(job, rank), env=env) for rank in range(cluster.nodes))
    notes = (
        "MINDFORMERS_PATH must name a MindFormers checkout: the wheel does not ship run_mindformer.py",
        "in semi-automatic parallel mode MindFormers seeds the order of data only, not the initial weights",
    )
    config = PlanFile(path=config_path(job), content=render(native, comments(native)))
    return LaunchPlan(
        nodes=nodes,
        files=(config, *_options(job, native)),
        output_dir=output_dir(job),
        what=f"run_mindformer.py of MindFormers {native.version} on {counted(cluster.world_size, 'device')}",
        notes=notes,
    )
