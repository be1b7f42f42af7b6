"""What a script of slime sets, as fields of a job; bash is evaluated as `launch import` does, never run.

Its program takes Megatron-LM's arguments beside its own, of which those below are fields here.
"""

import itertools
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from launcher.importing.evaluate import run_script
from launcher.importing.read_argv import read_argv
from launcher.importing.shell.placeholders import shown
from launcher.importing.shell.state import State
from launcher.job import Value, value_at
from launcher.mapping.backend import get_backend
from tools.recipe_sources.compare import NoSource, source_text

PROJECT = "slime"
_BACKEND, _PROGRAM = "megatron_lm", "train.py"
_OWN: Mapping[str, tuple[str, type]] = {
    "--num-rollout": ("schedule.train_iters", int),
    "--kl-loss-coef": ("task.beta", float),
    "--rollout-temperature": ("generation.temperature", float),
    "--actor-num-nodes": ("cluster.nodes", int),
    "--actor-num-gpus-per-node": ("cluster.devices_per_node", int),
}


# slime/backends/megatron_utils/arguments.py sets it whatever the script says (`args.bf16 = not args.fp16`).
_OF_PROGRAM = frozenset({"precision.dtype"})


def read(source: str, folders: Mapping[str, Path]) -> dict[str, Value]:
    """Return the fields that a script sets.

    Raises:
        NoSource: the project's folder is not given, lacks the commit or the file, or its script starts no training.
    """
    project, commit, path = source.split(" ")[:3]
    text = source_text(source, folders).decode()
    with tempfile.TemporaryDirectory(prefix="recipe-sources-") as folder:
        # The script reads files of its folder.
        archive = ["git", "-C", str(folders[project]), "archive", commit, str(Path(path).parent)]
        packed = subprocess.run(archive, capture_output=True, check=True).stdout
        subprocess.run(["tar", "-x", "-C", folder], input=packed, check=True)
        return of_script(text, Path(folder) / path)


def of_script(text: str, path: Path) -> dict[str, Value]:
    """Return the fields that a script at a path sets."""
    state = run_script(text, State(script=str(path)), path.parent)
    words = next((found for each in state.commands if (found := _after_program(each.words))), None)
    if words is None:
        raise NoSource(f"{path.name} starts no {_PROGRAM}")
    options = ["--seq-length", "1", *words]  # it has none: lengths are those of answers
    imported = read_argv(options, backend=_BACKEND, version=get_backend(_BACKEND).default_version, partial=True)
    paths = dict.fromkeys(field for arg in imported.mapped_args if arg.flag != "seq-length" for field in arg.fields)
    found = {field: value_at(imported.job, field) for field in paths if field not in _OF_PROGRAM}
    own = {name: value for name, value in itertools.pairwise(words) if name in _OWN}
    known = {field: value for field, value in found.items() if value is not None}
    return {**known, **{_OWN[name][0]: _OWN[name][1](value) for name, value in own.items()}}


def _after_program(words: Sequence[str]) -> list[str]:
    at = next((at for at, word in enumerate(words) if word.rpartition("/")[2] == _PROGRAM), None)
    return [] if at is None else [shown(word) for word in words[at + 1 :]]
