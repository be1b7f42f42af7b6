"""Starts Megatron-LM: torchrun, once per node, with the script of the checkout in MEGATRON_LM_PATH."""

from backends.megatron_lm.environment import ENVIRONMENT
from launcher.catalogue.command_line import option
from launcher.catalogue.versions import FORK
from launcher.job import Job, output_dir
from launcher.mapping.backend import get_backend
from launcher.mapping.environment import environment
from launcher.mapping.native import NativeArgs
from launcher.plan.node import NodePlan
from launcher.plan.plan import LaunchPlan
from launcher.plan.rendezvous import torchrun
from launcher.terminal import machines

# A reference: the script and the executors expand it from the environment, or fail.
CHECKOUT = "${MEGATRON_LM_PATH}"


def script(job: Job, native: NativeArgs) -> str:
    """Return the training script: pretrain_mamba.py where --spec names Mamba layers, else pretrain_gpt.py.

    A job imported from a script that starts one of a fork's own starts that on this fork.
    """
    own = get_backend(native.backend).own_script(native.version, job.imported.program)
    if own is not None:
        return own
    return "pretrain_mamba.py" if "mamba" in str(native.get("spec", "")) else "pretrain_gpt.py"


def argv(native: NativeArgs) -> list[str]:
    """Return the command line: `--flag value …`, a bare flag for a switch."""
    words: list[str] = []
    for arg in native:
        values = () if arg.value is True else arg.value if isinstance(arg.value, tuple) else (arg.value,)
        words += option(arg.flag, [str(value) for value in values])
    return words


def launch(job: Job, native: NativeArgs) -> LaunchPlan:
    """Return the plan: `torchrun … pretrain_gpt.py|pretrain_mamba.py …` on every node.

    The script needs no specific working directory, so relative paths of the job stay valid.
    """
    program = script(job, native)
    command = (f"{CHECKOUT}/{program}", *argv(native))
    nodes = tuple(
        NodePlan(rank=rank, argv=torchrun(job, rank, command), env=environment(ENVIRONMENT, job, native))
        for rank in range(job.cluster.nodes)
    )
    kind = "supervised fine-tuning" if native.has("sft") else "pre-training"
    return LaunchPlan(
        nodes=nodes,
        output_dir=output_dir(job),
        what=(
            f"Megatron-LM core {native.version}: {kind} by {program} under torchrun, "
            f"{machines(job.cluster.nodes, job.cluster.devices_per_node)}"
        ),
        notes=(_checkout(native.version),),
    )


def _checkout(version: str) -> str:
    like, _, fork = version.partition(FORK)
    if fork:
        return f"MEGATRON_LM_PATH names the checkout of the fork {fork}"
    return f"MEGATRON_LM_PATH names a checkout of NVIDIA/Megatron-LM at tag core_v{like}"
