"""Cases of a snapshot: the corpus, fuzzed command lines and files, and every recipe on every backend version."""

import json
import random
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from launcher import api
from launcher.importing.config import Configuration
from launcher.importing.imported import Imported
from launcher.importing.invocation import Invocation
from launcher.importing.job_file import job_yaml
from launcher.importing.judge import judge_existing
from launcher.importing.notes import ImportRefused
from launcher.importing.read_command import ImportOptions, read_command
from launcher.job import Job, as_tree
from launcher.job.finding import Finding
from launcher.mapping.backend import get_backend
from launcher.mapping.native import NativeArgs
from launcher.pipeline import judge
from tests.backends.mindformers.mutated import changed_file
from tests.backends.mutated import Line, changed
from tests.sampling import ROOT
from tools.bench.corpus import CORPORA, Outcome, outcomes

# Model folders are part of what is judged, so they lie at one place.
FOLDER = Path(tempfile.gettempdir()) / "launch-snapshot"
# Fixes are searched for one fuzzed line in so many: a search takes ten times as long as a verdict.
_FIXES_EVERY = 20

Answer = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One case: its name `section/backend/name`, and the function that returns its answer."""

    name: str
    answer: Callable[[], Answer]


def cases(facts: Path, count: int, sections: Sequence[str], seed: int) -> Iterator[Case]:
    """Yield every case of the sections; `count` fuzzed ones a backend."""
    if "recipes" in sections:
        yield from recipes()
    if "corpus" in sections:
        yield from corpus(facts)
    if "fuzz" in sections:
        yield from fuzz(facts, count, seed)


def recipes() -> Iterator[Case]:
    """Yield each recipe on each version of each backend."""
    for path in sorted((ROOT / "recipes").glob("*.yaml")):
        for backend in api.backend_names():
            for version in get_backend(backend).versions:
                args = [f"+recipe={path.stem}", f"backend={backend}", f"backend.version={version}"]
                yield Case(name=f"recipes/{backend}/{path.stem}@{version}", answer=partial(_recipe, args))


def corpus(facts: Path) -> Iterator[Case]:
    """Yield each record of upstream's own examples."""
    for file, (backend, versions) in CORPORA.items():
        seen: dict[str, int] = {}
        for outcome in outcomes(facts / file, backend, versions):
            number = seen[outcome.path] = seen.get(outcome.path, 0) + 1
            yield Case(name=f"corpus/{backend}/{outcome.path}#{number}", answer=partial(_record, outcome))


def fuzz(facts: Path, count: int, seed: int) -> Iterator[Case]:
    """Yield real command lines and files of each backend with one to three things changed."""
    from tests.backends.megatron import mutated as swift
    from tests.backends.megatron_lm import mutated as megatron_lm
    from tests.backends.mindspeed import mutated as mindspeed

    lines = {
        "megatron": (swift.bases(facts / "corpus_megatron_swift.jsonl", FOLDER / "models"), swift.MUTATIONS),
        "mindspeed": (mindspeed.bases(facts / "corpus_mindspeed.jsonl", FOLDER / "mindspeed"), mindspeed.MUTATIONS),
        "megatron_lm": (list(megatron_lm.recipe_lines()), megatron_lm.MUTATIONS),
    }
    for backend, (bases, mutations) in lines.items():
        for number, line in enumerate(islice(changed(bases, mutations, count, seed), len(bases), None)):
            yield Case(
                name=f"fuzz/{backend}/{number} {line.name}",
                answer=partial(_line, line, backend, number),
            )
    yield from _drawn_jobs(count // 2, seed)
    yield from _changed_files(facts / "corpus_mindformers.jsonl", count - count // 2, seed)


def _record(outcome: Outcome) -> Answer:
    if outcome.imported is None:
        return {"refused": outcome.refused, "crashed": outcome.crashed, "outside": outcome.outside}
    found = _imported(outcome.imported, fixes=True)
    return {**found, "differences": [str(each) for each in outcome.differences]}


def _recipe(args: Sequence[str]) -> Answer:
    try:
        job = api.compose(args)
    except api.ComposeError as error:
        return {"refused": str(error)}
    found = _judged(job, fixes=True)
    if not found["errors"]:
        found["plan"] = api.plan(job).as_tree()
    try:
        found["estimate"] = api.estimate(job).as_tree()
    except api.CannotEstimate as error:
        found["estimate"] = str(error)
    return found


def _line(line: Line, backend: str, number: int) -> Answer:
    try:
        read = api.import_argv([*line.program, *line.argv], backend=backend, env=line.env, world_size=line.world_size)
    except ImportRefused as refused:
        return {"refused": [str(note) for note in refused.notes]}
    return _imported(read, fixes=number % _FIXES_EVERY == 0)


def _drawn_jobs(count: int, seed: int) -> Iterator[Case]:
    from tests.backends.mindformers.verdicts import jobs

    for number, (name, _, job) in enumerate(jobs(count, seed)):
        yield Case(
            name=f"fuzz/mindformers/{name}",
            answer=partial(_judged, job, fixes=number % _FIXES_EVERY == 0),
        )


def _changed_files(corpus: Path, count: int, seed: int) -> Iterator[Case]:
    """Yield MindFormers' own files with one to three values changed."""
    records = [json.loads(line) for line in corpus.read_text(encoding="utf-8").splitlines()]
    records = [record for record in records if isinstance(record.get("yaml"), dict)]
    for number in range(count):
        draw = random.Random(f"{seed}:{number}")
        record = draw.choice(records)
        tree, reported = changed_file(record["yaml"], draw)
        world = record.get("world_size")
        yield Case(
            name=f"fuzz/mindformers/file {number} {record['path']}: {reported}",
            answer=partial(_file, tree, world, number),
        )


def _file(tree: dict[str, Any], world: int | None, number: int) -> Answer:
    per_node = {"total": str(world), "per_node": str(min(world, 8))} if isinstance(world, int) else {"per_node": "8"}
    invocation = Invocation(program="job.yaml", backends=("mindformers",), cluster=per_node, where="job.yaml")
    try:
        read = read_command(invocation, ImportOptions(backend="mindformers"), Configuration(tree=tree))
    except ImportRefused as refused:
        return {"refused": [str(note) for note in refused.notes]}
    return _imported(read, fixes=number % _FIXES_EVERY == 0)


def _imported(read: Imported, *, fixes: bool) -> Answer:
    """Return the findings on the arguments as written, and on the job file that they are imported as."""
    file = FOLDER / "job.yaml"
    FOLDER.mkdir(exist_ok=True)
    file.write_text(job_yaml(read, "snapshot", with_version=True), encoding="utf-8")
    try:
        job = _judged(api.compose([f"+job={file}"]), fixes=fixes)
    except api.ComposeError as error:
        job = {"errors": ["ComposeError"], "findings": [], "refused": str(error)}
    return {
        "version": read.version,
        "imported": as_tree(read.job),
        "unmapped": {arg.flag: arg.value for arg in read.unmapped},
        "warnings": [str(note) for note in (*read.warnings, *read.problems)],
        "as_written": _findings(judge_existing(read, fixes=fixes).findings),
        "job": job,
    }


def _judged(job: Job, *, fixes: bool) -> dict[str, Any]:
    outcome = judge(job, fixes=fixes)
    return {
        "errors": sorted({finding.rule for finding in outcome.findings if finding.severity == "error"}),
        "findings": _findings(outcome.findings),
        "args": _args(outcome.native),
    }


def _findings(findings: Iterable[Finding]) -> list[Any]:
    return [finding.as_tree() for finding in findings]


def _args(native: NativeArgs) -> dict[str, Any]:
    return {arg.flag: [arg.value, arg.field, arg.origin] for arg in native}
