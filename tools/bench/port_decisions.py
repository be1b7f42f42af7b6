"""Ports every example of the corpus to every other backend and counts what is left for the user to decide.

    python -m tools.bench.port_decisions --facts DIR [--megatron-lm CHECKOUT] [--every N] [--state FILE] [--kinds N]

DIR and CHECKOUT are those of tools.bench.corpus. A decision is one thing that the user has to say before `launch check`
accepts the port: which model, which data, how long; errors that one answer settles count once. Where the answer can be
given without the user's files (prepared data, a number of steps, an accepted loss), it is given and the port is checked
again, so that errors behind it count, too. A port whose kind of training or family the target does not have is refused:
that one thing is its reason. Goes on where it was stopped (--state, keyed by the state of the sources). Prints the
table of docs/import.md.
"""

import argparse
import dataclasses
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from launcher.importing.imported import Imported
from launcher.importing.port import ported
from launcher.job import Job, Origin, Value
from launcher.job.derive import with_values
from launcher.job.finding import Finding
from launcher.mapping.backend import backend_names, get_backend
from tools.bench.corpus import CORPORA, Outcome, of_checkout, outcomes
from tools.resumable import digest, load, save, state_file

STATE = state_file("port_decisions")
# What settles errors together, by the start of a field or of a rule.
DECISIONS = (
    ("model", ("model.", "tokenizer.", "REQ-MODEL", "SW-SOURCE", "MODEL-", "MOE-TOPK")),
    ("data", ("data.", "PORT-DATA", "batch.packing", "MF-PACK")),
    ("length", ("schedule.epochs", "schedule.train")),
)
# Kinds of training and families that a backend has or has not.
KINDS: Mapping[str, Callable[[Finding], bool]] = {
    "task.type": lambda each: each.fields[:1] == ("task.type",),
    "lora.rank": lambda each: each.fields[:1] == ("lora.rank",),
    "multimodal model": lambda each: each.rule == "PORT-MODEL",
    "Mamba layers": lambda each: each.rule == "MAP-UNSUPPORTED" and each.fields[:1] == ("model.is_hybrid_model",),
    "family": lambda each: (
        each.rule == "MAP-UNSUPPORTED"
        and each.fields[:1] == ("model.model_type",)
        # The file has sizes without a name, or not all of them: which model it is, is a decision.
        and "model_type=null" not in each.message
        and "is needed for" not in each.message
    ),
}
PREPARED: Mapping[str, Value] = {
    "data.paths": ("prepared",),
    "data.template": None,
    "data.enable_thinking": None,
    "data.order": None,
    "data.system": None,
    "data.self_cognition_author": None,
    "data.self_cognition_name": None,
    "data.streaming": None,
    "data.split": None,
    "data.shuffle": None,
    "batch.packing": None,
}
FORMATS = {"pretrain": ("megatron", "text"), "sft": ("tokenized", "messages", "megatron"), "": ("messages", "megatron")}
ROUNDS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What a port leaves to the user: decisions, or the one thing that the target does not have."""

    decisions: tuple[str, ...] = ()
    refused: str = ""


def left(imported: Imported, target: str) -> Left:
    """Return what a port of one example leaves to decide."""
    found: dict[str, None] = {}
    accepted: list[str] = []
    for _ in range(ROUNDS):
        port = ported(imported, target, accepted=accepted, fixes=False)
        errors = [finding for finding in port.findings if finding.severity == "error"]
        cannot = next((name for name, holds in KINDS.items() if any(holds(each) for each in errors)), "")
        if cannot:
            return Left(refused=cannot)
        kinds = {kind_of(error): error for error in errors}
        new = [kind for kind in kinds if kind not in found]
        found.update(dict.fromkeys(new))
        values: dict[str, Value] = {}
        for kind in new:
            values.update(taken(kind, port.job, target))
            accepted += [flag for flag in kinds[kind].flags if kinds[kind].rule == "PORT-LEFT-OUT"]
        if not values and not any(kinds[kind].rule == "PORT-LEFT-OUT" for kind in new):
            break
        imported = dataclasses.replace(imported, job=with_values(imported.job, values, Origin(kind="override")))
    return Left(decisions=tuple(found))


def kind_of(error: Finding) -> str:
    """Return the decision that settles an error."""
    words = (*error.fields[:1], error.rule)
    for name, starts in DECISIONS:
        if any(word.startswith(starts) for word in words):
            return name
    return error.fields[0] if error.fields and error.rule == "MAP-UNSUPPORTED" else error.rule


def taken(kind: str, job: Job, target: str) -> Mapping[str, Value]:
    """Return what a user would say, as far as it needs none of the user's files."""
    if kind == "length":
        return {"schedule.epochs": None, "schedule.train_iters": 1000}
    if kind != "data":
        return {}
    backend = get_backend(target)
    table = backend.table(backend.default_version)
    unknown = [path for path in PREPARED if path in table.unsupported]
    for choice in FORMATS.get(job.task.type, FORMATS[""]):
        if _takes_format(job, target, choice):
            return {**PREPARED, **dict.fromkeys(unknown), "data.format": choice}
    return {}


def _takes_format(job: Job, target: str, choice: str) -> bool:
    from launcher.mapping.engine import translate

    backend = get_backend(target)
    version = backend.default_version
    changed = with_values(job, {**PREPARED, "data.format": choice}, Origin(kind="override"))
    findings = translate(backend.prepare(changed, version), backend, version).findings
    return not any("data.format" in finding.fields for finding in findings if finding.severity == "error")


def main() -> int:
    """Measure and print the table; return the exit code."""
    options = _options()
    sources = digest()
    known = load(options.state, sources, _left)
    rows: dict[tuple[str, str], list[Left]] = {}
    for source, read in sources_of(options).items():
        examples = [each for each in read() if each.imported is not None][:: options.every]
        for target in backend_names():
            if target == source:
                continue
            for number, each in enumerate(examples):
                key = f"{source} {target} {number} {each.path}"
                if key not in known:
                    assert each.imported is not None
                    known[key] = left(each.imported, target)
                rows.setdefault((source, target), []).append(known[key])
            save(options.state, sources, known)
    print(table(rows, options.kinds))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--facts", type=Path, required=True, metavar="DIR", help="folder with corpus_*.jsonl")
    parser.add_argument("--megatron-lm", type=Path, metavar="CHECKOUT", help="also the configurations of its tests")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="every Nth example only")
    parser.add_argument("--state", type=Path, default=STATE, metavar="FILE")
    parser.add_argument("--kinds", type=int, default=3, metavar="N", help="the N most frequent decisions of each pair")
    return parser.parse_args()


def sources_of(options: argparse.Namespace) -> dict[str, Callable[[], Iterator[Outcome]]]:
    """Return what reads the examples of each backend."""
    found: dict[str, Callable[[], Iterator[Outcome]]] = {
        backend: partial(outcomes, options.facts / name, backend, versions)
        for name, (backend, versions) in CORPORA.items()
    }
    if options.megatron_lm is not None:
        found["megatron_lm"] = partial(of_checkout, options.megatron_lm)
    return found


def table(rows: Mapping[tuple[str, str], Sequence[Left]], kinds: int) -> str:
    """Return the figures as a table."""
    lines = [
        "| from | to | ports | refused: the target has no such training | none to decide | one or two | more | median "
        "| most frequent |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for (source, target), found in rows.items():
        counts = [len(each.decisions) for each in found if not each.refused]
        reasons = Counter(each.refused for each in found if each.refused)
        refused = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common()) or "0"
        often = Counter(kind for each in found for kind in each.decisions).most_common(kinds)
        middle = f"{statistics.median(counts):g}" if counts else "–"
        lines.append(
            f"| {source} | {target} | {len(found)} | {refused} | {counts.count(0)} "
            f"| {sum(1 <= count <= 2 for count in counts)} | {sum(count > 2 for count in counts)} | {middle} "
            f"| {', '.join(f'{kind} {count}' for kind, count in often)} |"
        )
    return "\n".join(lines)


def _left(values: Mapping[str, Any]) -> Left:
    return Left(decisions=tuple(values["decisions"]), refused=values["refused"])


if __name__ == "__main__":
    sys.exit(main())
