"""Reasons for the differences between a recipe and its source: the recipe's own, and general ones."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from launcher.job import Job, Value, field_at, field_paths

GENERAL = Path(__file__).parent / "general.json"
HEADING = "Differs from its source:"
# What a script has where its reader has to fill something in.
_PLACEHOLDER = re.compile(r"your |\$|<")


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One value of a source that the recipe has otherwise.

    Attributes:
        path: canonical field, or `backend.args.NAME`.
        source, recipe: effective values on the source's backend, as text.
        written: what the recipe itself has for it; None or empty: nothing.
        affects_training: as the field or argument declares; None: unknown.
    """

    path: str
    source: str
    recipe: str
    written: Value
    affects_training: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """A general reason: the paths and the condition under which it holds, and its text."""

    paths: tuple[str, ...]
    when: str
    why: str


# Conditions of general reasons.
CONDITIONS = {
    "always": lambda each, job: True,
    "not written": lambda each, job: each.written in (None, (), False),
    "placeholder": lambda each, job: bool(_PLACEHOLDER.match(each.source)),
    "the preset": lambda each, job: each.path not in job.model.overridden,
    "pretrained": lambda each, job: job.model.pretrained is not False,
    "alltoall": lambda each, job: job.moe.token_dispatcher_type == "alltoall",
    "bf16": lambda each, job: job.precision.dtype == "bf16",
    "no evaluation": lambda each, job: job.evaluation.iters == 0,
    "no context parallelism": lambda each, job: job.parallel.cp == 1,
    "even stages": lambda each, job: not job.parallel.noop_layers,
}


@cache
def general() -> tuple[Reason, ...]:
    """Return the general reasons, in the order in which they are tried."""
    tree = json.loads(GENERAL.read_text(encoding="utf-8"))
    return tuple(Reason(paths=tuple(each["paths"]), when=each["when"], why=each["why"]) for each in tree)


def own(recipe: str) -> dict[str, str]:
    """Return the reasons that a recipe's comment gives, by path.

    Args:
        recipe: text of the recipe's file. Under the line `# Differs from its source:`, each reason is
            `# - path, path: reason`, continued on lines that begin with `#   `.
    """
    return dict(_own(recipe.partition("defaults:")[0].splitlines()))


def _own(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    if f"# {HEADING}" not in lines:
        return
    items: list[str] = []
    for line in lines[lines.index(f"# {HEADING}") + 1 :]:
        if line.startswith("# - "):
            items.append(line.removeprefix("# - "))
        elif line.startswith("#   ") and items:
            items[-1] += " " + line.removeprefix("#").strip()
        else:
            break
    for item in items:
        paths, _, why = item.partition(": ")
        for path in paths.split(", "):
            yield path, why


def reason(each: Difference, job: Job, reasons: Mapping[str, str]) -> str:
    """Return the reason for a difference; empty if there is none."""
    if each.path in reasons:
        return reasons[each.path]
    for known in general():
        if any(fnmatchcase(each.path, path) for path in known.paths) and CONDITIONS[known.when](each, job):
            return known.why
    if each.affects_training is False and CONDITIONS["not written"](each, job):
        return "does not affect training, and is left to the backend"
    return ""


def known_path(path: str) -> bool:
    """Return whether a reason may name this path."""
    return path.startswith("backend.args.") or path in field_paths()


def affects_training(path: str) -> bool | None:
    """Return what a field declares; None for an argument without a field."""
    return None if path.startswith("backend.args.") else field_at(path).meta.affects_training
