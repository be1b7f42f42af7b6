"""`-m`: one result for each combination of swept values, for verbs that start nothing; parses Hydra's own settings."""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from typing import Any

from launcher.cli.options import print_json
from launcher.cli.refusal import refusal_of
from launcher.compose import ComposeError, sweep
from launcher.compose.errors import Mistake
from launcher.compose.overrides import is_text
from launcher.job.secret import without_secrets
from launcher.plan.executor import launchers
from launcher.records import dataclass

# Settings of Hydra's submitit launcher, and the equivalent fields.
_SETTINGS = {
    "partition": "cluster.partition={}",
    "account": "cluster.account={}",
    "qos": "cluster.qos={}",
    "constraint": "cluster.constraint={}",
    "exclude": "cluster.exclude={}",
    "gres": "cluster.gres={}",
    "nodes": "cluster.nodes={}",
    "gpus_per_node": "cluster.devices_per_node={}",
    "cpus_per_task": "cluster.cpus_per_task={}",
    "mem_gb": "cluster.memory={}G",
    "timeout_min": "cluster.time_limit={}",
    "array_parallelism": "cluster.array_limit={}",
    "name": "name={}",
}
# Hydra's own launcher: one job after another.
_NONE = "basic"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Result of a verb for one job: exit code, and the output of --json."""

    code: int
    tree: Any


def add_option(made: ArgumentParser) -> None:
    """Add -m to a verb."""
    made.add_argument("-m", "--multirun", action="store_true", help="one result for each combination (a=1,2 b=3,4)")


def answered(options: Namespace, one: Callable[[Namespace], Answer]) -> int:
    """Run a verb for the job of the command line, or with -m for each of a sweep; return the highest exit code.

    Args:
        one: runs the verb for a single job; it prints text unless --json is given.
    """
    if not options.multirun:
        answer = one(options)
        if options.json:
            print_json(answer.tree)
        return answer.code
    words, _ = through(options.overrides)
    combinations = sweep(words, options.config_dir)
    folders = {word for words in combinations for word in words if word.lstrip("+").startswith("output_dir=")}
    has_own_folder = len(folders) == len(combinations)
    trees, codes = [], []
    for number, words in enumerate(combinations, start=1):
        shown = without_secrets(words)
        if not options.json:
            print(f"# job {number} of {len(combinations)}: {' '.join(shown)}", flush=True)
        of_job = {"overrides": words, "number": number, "has_own_folder": has_own_folder}
        answer = _caught(one, Namespace(**{**vars(options), **of_job}))
        tree = answer.tree if isinstance(answer.tree, dict) else {"result": answer.tree}
        trees.append({"number": number, "overrides": shown, **tree})
        codes.append(answer.code)
        sys.stdout.flush()
    if options.json:
        print_json(trees)
    return max(codes)


def _caught(one: Callable[[Namespace], Answer], options: Namespace) -> Answer:
    """Return the refusal of one job of a sweep as its result, so that the other jobs still run."""
    try:
        return one(options)
    except Exception as error:
        refusal = refusal_of(error, options.verb)
        if refusal is None:
            raise
        if not options.json:
            refusal.show()
        return Answer(code=refusal.code, tree=refusal.tree)


def through(words: Sequence[str], *, wait: bool = False) -> tuple[list[str], str]:
    """Separate Hydra's own settings from the arguments of a sweep.

    Args:
        wait: whether to wait for the jobs to end (`--wait`).

    Returns:
        The arguments of the job, and the name of the requested Hydra launcher; "": none.

    Raises:
        ComposeError: a launcher, sweeper or setting that is not supported.
    """
    rest: list[str] = []
    launcher, mistakes = "", []
    for word in words:
        name, _, value = word.lstrip("+").partition("=")
        if name == "hydra/launcher" and (value == _NONE or value in launchers()):
            launcher = "" if value == _NONE else value
        elif name == "hydra/sweeper" and value == "basic":
            continue
        elif name.startswith("hydra.launcher.") and name.removeprefix("hydra.launcher.") in _SETTINGS:
            form = _SETTINGS[name.removeprefix("hydra.launcher.")]
            if _is_many(value):
                mistakes.append(_one_value(name, word, form, value))
            else:
                rest.append(form.format(value))
        elif name.startswith(("hydra/", "hydra.")):
            mistakes.append(_no_meaning(name, word))
        else:
            rest.append(word)
    if launcher and wait:
        works = ("launch ps", "launch logs ID -f", "--wait without hydra/launcher=… (one after another)")
        mistakes.append(Mistake(what=f"--wait: hydra/launcher={launcher} submits all jobs and returns", works=works))
    if launcher and not any(word.startswith("cluster=") for word in rest):
        rest.append(f"cluster={launchers()[launcher].name}")
    if mistakes:
        raise ComposeError(mistakes)
    return rest, launcher


def _is_many(value: str) -> bool:
    """Return whether a value is a sweep, or text that sbatch would read as a list."""
    quoted = len(value) > 1 and value[0] in "'\"" and value[-1] == value[0]
    return not quoted and any(sign in value for sign in ",()")


def _one_value(name: str, word: str, form: str, value: str) -> Mistake:
    field, _, text = form.partition("=")
    parts = [text.format(part.strip()) for part in value.split(",")] if "(" not in value else ["…", "…"]
    works = [f"{field}={','.join(parts)} (a job for each)"]
    if is_text(field) and text == "{}":
        works.append(f"{name}='{value}' (one string)")
    return Mistake(what=f"{name} takes one value", where=word, works=tuple(works))


def _no_meaning(name: str, word: str) -> Mistake:
    works = {
        "hydra/launcher": (
            *(f"hydra/launcher={each}" for each in launchers()),
            f"hydra/launcher={_NONE} (one after another)",
        ),
        "hydra/sweeper": ("hydra/sweeper=basic", "launch search (the best parallel strategy)"),
        "hydra.sweep.dir": ("output_dir=…",),
        "hydra.launcher.setup": ("cluster.setup=[…]",),
        "hydra.launcher.additional_parameters": ("cluster.sbatch_options=[…]",),
    }.get(name, tuple(f"hydra.launcher.{each}=…" for each in _SETTINGS))
    return Mistake(what=f"{name} is not a supported setting of Hydra", where=word, works=works)
