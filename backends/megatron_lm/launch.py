"""How Megatron-LM is started: torchrun, once per node, with the script of a checkout that the environment names."""

from dataclasses import dataclass

from launcher.job import Job, output_dir
from launcher.plan.plan import LaunchPlan, NodePlan
from launcher.plan.rendezvous import torchrun
from launcher.translate.native import NativeArgs

# A reference: the script and the executors fill it in from the environment, or refuse to start.
SCRIPT = "${MEGATRON_LM_PATH}/pretrain_gpt.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """An environment variable that the backend needs, and where that is said."""

    name: str
    value: str
    source: str


ENVIRONMENT = (
    Variable(
        name="CUDA_DEVICE_MAX_CONNECTIONS",
        value="1",
        source="validate_args refuses tp or cp > 1 without it before Blackwell; every example sets it",
    ),
)
_DETERMINISTIC = (
    Variable(name="NCCL_ALGO", value="Ring", source="validate_args: --deterministic-mode needs a fixed algorithm"),
    Variable(name="NVTE_ALLOW_NONDETERMINISTIC_ALGO", value="0", source="docs of Transformer Engine"),
    Variable(name="CUBLAS_WORKSPACE_CONFIG", value=":4096:8", source="torch.use_deterministic_algorithms"),
)
_OFFLOADING = (
    Variable(name="NVTE_CPU_OFFLOAD_V1", value="1", source="validate_args: fine-grained offloading with TE >= 2.10"),
)


def argv(native: NativeArgs) -> list[str]:
    """Return the arguments as words: `--flag value …`, a bare flag for a switch."""
    words: list[str] = []
    for arg in native:
        words.append(f"--{arg.flag}")
        if arg.value is True:
            continue
        values = arg.value if isinstance(arg.value, tuple) else (arg.value,)
        words.extend(str(value) for value in values)
    return words


def environment(job: Job, native: NativeArgs) -> dict[str, str]:
    """Return the environment of every node; what the user sets wins."""
    variables = ENVIRONMENT + (_DETERMINISTIC if native.has("deterministic-mode") else ())
    variables += _OFFLOADING if native.has("fine-grained-activation-offloading") else ()
    return {variable.name: variable.value for variable in variables} | dict(job.backend.env)


def launch(job: Job, native: NativeArgs) -> LaunchPlan:
    """Return the plan: `torchrun … pretrain_gpt.py …` on every node.

    The script needs no working directory of its own, so relative paths of the job keep their meaning.
    """
    command = (SCRIPT, *argv(native))
    nodes = tuple(
        NodePlan(rank=rank, argv=torchrun(job, rank, command), env=environment(job, native))
        for rank in range(job.cluster.nodes)
    )
    kind = "supervised fine-tuning" if native.has("sft") else "pre-training"
    return LaunchPlan(
        nodes=nodes,
        output_dir=output_dir(job),
        what=(
            f"Megatron-LM core {native.version}: {kind} by pretrain_gpt.py under torchrun, "
            f"{job.cluster.nodes} node(s) x {job.cluster.devices_per_node} device(s)"
        ),
        notes=("MEGATRON_LM_PATH names a checkout of NVIDIA/Megatron-LM at tag core_v" + native.version,),
    )
