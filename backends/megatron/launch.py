"""Starts Megatron-SWIFT: `megatron sft|pt|rlhf` runs torchrun itself, configured by environment variables."""

import json
from collections.abc import Iterator, Mapping

from backends.megatron.environment import ENVIRONMENT
from backends.megatron.launch_model import model_files, prepare_model
from backends.megatron.mapping.model import (
    BRIDGED,
    from_pretrained,
    is_described,
    mcore_directory,
    model_dir,
    source,
)
from launcher.catalogue.command_line import option
from launcher.catalogue.versions import in_range
from launcher.job import Job, Value, output_dir
from launcher.mapping.environment import environment
from launcher.mapping.native import NativeArgs
from launcher.plan import LaunchPlan, NodePlan
from launcher.plan.rendezvous import master_addr, master_port

_COMMANDS = {"pretrain": "pt", "sft": "sft"}


def command(job: Job) -> str:
    """Return the sub-command of `megatron` that trains this job."""
    return _COMMANDS.get(job.task.type, "rlhf")


def argv(native: NativeArgs) -> list[str]:
    """Return the command line for HfArgumentParser: `--flag value`, booleans true|false, one word per list item."""
    line: list[str] = []
    for arg in native:
        values = list(arg.value) if isinstance(arg.value, (tuple, list)) else [arg.value]
        line += option(arg.flag, [text_of(value) for value in values])
    return line


def text_of(value: Value) -> str:
    """Return one value as a command-line word: true|false, JSON for mappings and inner lists."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (Mapping, list, tuple)):
        return json.dumps(value, ensure_ascii=False)
    return str(value)


def launch(job: Job, native: NativeArgs) -> LaunchPlan:
    """Return the plan that starts `megatron` once on every node."""
    line = (_program(job), command(job), *argv(native))
    nodes = tuple(
        NodePlan(rank=rank, argv=line, env=_environment(job, native, rank)) for rank in range(job.cluster.nodes)
    )
    devices = f"{job.cluster.nodes} x {job.cluster.devices_per_node} {job.hardware.device} devices"
    return LaunchPlan(
        nodes=nodes,
        files=model_files(job, native.version),
        prepare=prepare_model(job, native.version),
        output_dir=output_dir(job),
        what=f"ms-swift {native.version}: megatron {command(job)} on {devices}, started by its own torchrun",
        notes=tuple(_notes(job, native)),
    )


def _program(job: Job) -> str:
    """Return the console script beside the chosen Python, else the one on the PATH; swift runs with its Python."""
    folder, slash, _ = (job.cluster.python or "").rpartition("/")
    return f"{folder}/megatron" if slash else "megatron"


def _environment(job: Job, native: NativeArgs, rank: int) -> dict[str, str]:
    """Return ENVIRONMENT and the variables that swift turns into torchrun options (swift/cli/main.py:74 @4.6.0)."""
    env = {"NPROC_PER_NODE": str(job.cluster.devices_per_node), "MASTER_PORT": str(master_port(job))}
    if job.cluster.nodes > 1:
        env |= {"NNODES": str(job.cluster.nodes), "NODE_RANK": str(rank), "MASTER_ADDR": master_addr(job)}
    return env | environment(ENVIRONMENT, job, native)


def _notes(job: Job, native: NativeArgs) -> Iterator[str]:
    version = native.version
    converted = mcore_directory(job)
    if in_range(version, None, "3.9") and native.get("load") == converted and converted is not None:
        yield (
            f"{converted} must exist before the start; it is made once by: swift export --model {source(job)} "
            f"--to_mcore true --torch_dtype bfloat16 --output_dir {converted}"
        )
    if in_range(version, None, "3.99"):
        yield "ms-swift 3.x clones Megatron-LM at its start unless MEGATRON_LM_PATH names a checkout"
    if is_described(job, version) and not from_pretrained(job):
        yield "training starts from random weights"
        if in_range(version, BRIDGED, None):
            yield f"one process draws them into {model_dir(job)} first: 4 bytes of memory and 2 of disk a parameter"
    if is_described(job, version) and job.tokenizer.path is None and source(job) is None:
        yield f"no tokenizer is named: set tokenizer.path, or put a tokenizer's files into {model_dir(job)}"
    if job.cluster.nodes > 1:
        yield "every node needs the same paths: a shared disk, or MODELSCOPE_CACHE and the output directory on one"
