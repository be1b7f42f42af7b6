"""Builds MindSpeed-LLM's launch plan: torchrun once per node, in the checkout at MINDSPEED_LLM_PATH."""

from dataclasses import replace
from pathlib import Path

from backends.megatron_lm.launch import argv
from backends.mindspeed.environment import ENVIRONMENT
from backends.mindspeed.mapping.data import pairs_file, rewrites_pairs
from launcher.job import Job, output_dir
from launcher.mapping.environment import environment
from launcher.mapping.native import NativeArg, NativeArgs
from launcher.plan.node import NodePlan
from launcher.plan.plan import LaunchPlan, PlanFile
from launcher.plan.rendezvous import torchrun
from launcher.plan.shell import LAUNCH_DIR
from launcher.terminal import machines

# Expanded from the environment by the script and the executors, which fail if it is not set.
CHECKOUT = "${MINDSPEED_LLM_PATH}"
_PAIRS_SCRIPT = "preference_pairs.py"

# Arguments that name files. The scripts run in the checkout, whose preprocess_data.py is looked for in the working
# directory (core/datasets/dataset_preprocess.py:74 @26.1.0), so paths relative to the user's folder are anchored there.
_FILES = frozenset(
    {
        "data-path",
        "train-data-path",
        "valid-data-path",
        "data-cache-path",
        "load",
        "save",
        "lora-load",
        "ref-model",
        "tensorboard-dir",
        "profile-save-path",
    }
)


# Layer specifications that need another entry script. Source: tests/poc/deepseek4_flash, examples/mcore/mamba2.
_OF_SPEC = {"mamba_spec": "pretrain_mamba.py", "deepseek4_spec": "pretrain_deepseek4.py"}


def script(native: NativeArgs) -> str:
    """Return the entry script: posttrain_gpt.py with --stage, those of `_OF_SPEC`, otherwise pretrain_gpt.py."""
    if native.has("stage"):
        return "posttrain_gpt.py"
    spec = native.get("spec", "")
    module = str(spec[0] if isinstance(spec, tuple) and spec else spec).rpartition(".")[2]
    return _OF_SPEC.get(module, "pretrain_gpt.py")


def anchored(job: Job, native: NativeArgs) -> NativeArgs:
    """Return the arguments with relative paths resolved against the launch directory."""
    named_by_user = {job.tokenizer.path, job.model.path} - {None}

    def anchor(arg: NativeArg) -> NativeArg:
        is_tokenizer = arg.flag in ("tokenizer-name-or-path", "tokenizer-model") and arg.value in named_by_user
        if arg.flag not in _FILES and not is_tokenizer:
            return arg
        parts = arg.value if isinstance(arg.value, tuple) else (arg.value,)
        paths = tuple(_below_launch_dir(str(part)) for part in parts)
        return replace(arg, value=paths if isinstance(arg.value, tuple) else paths[0])

    return native.with_args(anchor(arg) for arg in native)


def _below_launch_dir(path: str) -> str:
    is_weight = path.replace(".", "", 1).isdigit()
    return path if is_weight or path.startswith(("/", "$", "~")) else f"${{{LAUNCH_DIR}}}/{path}"


def launch(job: Job, native: NativeArgs) -> LaunchPlan:
    """Return the plan: `torchrun … pretrain_gpt.py|posttrain_gpt.py …` on every node, in the checkout."""
    command = (script(native), *argv(anchored(job, native)))
    env = environment(ENVIRONMENT, job, native)
    nodes = tuple(
        NodePlan(rank=rank, argv=torchrun(job, rank, command), env=env, workdir=CHECKOUT)
        for rank in range(job.cluster.nodes)
    )
    kind = f"post-training ({native.get('stage')})" if native.has("stage") else "pre-training"
    rewrites = rewrites_pairs(job, native.version)
    return LaunchPlan(
        nodes=nodes,
        files=(_pairs_script(job),) if rewrites else (),
        prepare=(_rewrite_pairs(job),) if rewrites else (),
        output_dir=output_dir(job),
        what=(
            f"MindSpeed-LLM {native.version}: {kind} by {script(native)} under torchrun, "
            f"{machines(job.cluster.nodes, job.cluster.devices_per_node)}"
        ),
        notes=("The CANN environment (set_env.sh) must be loaded in the shell that starts this.",),
    )


def _pairs_script(job: Job) -> PlanFile:
    text = (Path(__file__).parent / _PAIRS_SCRIPT).read_text(encoding="utf-8")
    return PlanFile(path=f"{output_dir(job)}/{_PAIRS_SCRIPT}", content=text)


def _rewrite_pairs(job: Job) -> NodePlan:
    """Return the command that writes preference pairs as the pairwise handler reads them."""
    words = (job.cluster.python or "python", f"{output_dir(job)}/{_PAIRS_SCRIPT}", pairs_file(job), *job.data.paths)
    return NodePlan(rank=0, argv=words)


__all__ = ["argv", "launch"]
