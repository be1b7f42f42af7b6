"""Training programs that are none of the backends: how their commands and files are told from those of a backend."""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from launcher.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherProgram:
    """A program whose commands and files are refused by its name.

    Attributes:
        title: its name for the user.
        words: first words of its commands, separated by blanks.
        modules: packages that `python -m` starts, and folders of its scripts.
        scripts: names of its scripts.
        options: options that only it has; one is enough.
        keys: top-level keys that only its files have; one is enough.
        together: top-level keys of its files that other programs have, too; all of them are needed.
    """

    title: str
    words: str = ""
    modules: str = ""
    scripts: str = ""
    options: str = ""
    keys: str = ""
    together: str = ""


# The more specific ones first: several build on the Trainer of transformers.
PROGRAMS = (
    OtherProgram(
        title="LLaMA-Factory",
        words="llamafactory-cli lmf",
        modules="llamafactory",
        options="finetuning_type cutoff_len",
        keys="finetuning_type cutoff_len",
    ),
    OtherProgram(
        title="veRL",
        modules="verl recipe.dapo",
        keys="actor_rollout_ref",
    ),
    OtherProgram(
        title="OpenRLHF",
        modules="openrlhf",
        scripts="train_ppo_ray.py",
    ),
    OtherProgram(
        title="NeMo",
        words="nemo",
        modules="nemo nemo_rl nemo_aligner",
        scripts="megatron_gpt_pretraining.py megatron_gpt_finetuning.py megatron_gpt_continue_training.py",
        keys="exp_manager",
    ),
    OtherProgram(title="Axolotl", words="axolotl", modules="axolotl", together="base_model datasets"),
    OtherProgram(title="torchtune", words="tune", modules="torchtune"),
    OtherProgram(title="torchtitan", modules="torchtitan"),
    OtherProgram(title="TRL", words="trl", modules="trl"),
    OtherProgram(title="GPT-NeoX", scripts="deepy.py", keys="pipe-parallel-size pipe_parallel_size"),
    OtherProgram(title="Colossal-AI", words="colossalai"),
    OtherProgram(
        title="the Trainer of transformers",
        scripts="run_clm.py run_mlm.py run_glue.py run_summarization.py run_translation.py run_qa.py",
        options="per_device_train_batch_size",
        keys="per_device_train_batch_size",
    ),
    OtherProgram(title="DeepSpeed", keys="zero_optimization train_micro_batch_size_per_gpu"),
    OtherProgram(title="Accelerate", keys="compute_environment distributed_type"),
    OtherProgram(title="Kubernetes", keys="apiVersion"),
)
_PYTHON = re.compile(r"python[\d.]*|torchrun|deepspeed|accelerate|torch\.distributed\.(run|launch)")


def program_of_command(words: Sequence[str]) -> OtherProgram | None:
    """Return the program that a command starts, launchers included; None: none that is known."""
    plain = [word for word in words if not re.fullmatch(r"\w+=.*", word)]
    if not plain:
        return None
    options = {word.lstrip("-").partition("=")[0].replace("-", "_") for word in plain if word.startswith("--")}
    started = _started(plain)
    first = plain[0].rpartition("/")[2]
    for each in PROGRAMS:
        if first in each.words.split() or (started and _is_of(each, started)) or options & set(each.options.split()):
            return each
    return None


def _started(words: Sequence[str]) -> str:
    """Return the module or script that Python or a launcher starts, with slashes."""
    for at, word in enumerate(words[1:], 1):
        if words[at - 1] in ("-m", "--module") and not _PYTHON.fullmatch(word):
            return word.replace(".", "/") + ".py"
        if word.endswith(".py") and not word.startswith("-"):
            return word
    return ""


def _is_of(program: OtherProgram, path: str) -> bool:
    folders, name = path.split("/")[:-1], path.rpartition("/")[2]
    packages = [module.split(".") for module in program.modules.split()]
    inside = any(folders[: len(package)] == package for package in packages)
    return inside or name in program.scripts.split()


def program_of_file(tree: Mapping[str, Any] | Collection[str]) -> OtherProgram | None:
    """Return the program whose file has these top-level keys; None: none that is known."""
    keys = {str(key) for key in tree}
    for each in PROGRAMS:
        together = set(each.together.split())
        if keys & set(each.keys.split()) or (together and together <= keys):
            return each
    return None


def why_not(program: OtherProgram) -> str:
    """Return the reason for which a command or file of a program is refused."""
    return f"it belongs to {program.title}, which is none of the backends"
