"""Imports every script of the upstreams' own repositories, with a real bash's words as the truth.

The mode `--upstream` of tools.bench.other_scripts. Every script of a checkout is given to the command that a user
types (`launch import FILE`), and the words of its training command, as a real bash hands them to a stub, are compared
with those of the import; a job must also write each of them again. Whether a script trains on a backend is decided by
the programs that bash starts, not by the import. MindFormers' training is a YAML file, which starts nothing: its
`run_mode` decides, and the job must write each of its keys again.
"""

import contextlib
import io
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from launcher.cli.dispatch import dispatch
from launcher.importing.invocation import entries
from launcher.importing.read_command import ImportOptions
from launcher.importing.read_file import read_file
from launcher.importing.roundtrip import lost
from tools.bench.corpus_check import BROKEN
from tools.bench.real_bash import commands_of, programs_of
from tools.resumable import digest, load, save

SUFFIXES = (".sh", ".slurm", ".sbatch")
GOAL = 0.98
EXACT, DIFFERS, REFUSED = "exact", "differs", "refused"
# Whether a script trains is decided with these as its first parameters if it starts nothing without.
_PARAMETERS = {str(number): f"v_{number}" for number in range(1, 9)}
_TRAINING_MODES = ("train", "finetune", "train_with_eval", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """One checkout: name of the project, its version, its folder."""

    name: str
    version: str
    folder: Path

    @property
    def title(self) -> str:
        """Return project and version."""
        return f"{self.name} {self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """One script.

    Attributes:
        programs: what bash starts, launchers and shell tools left out.
        trains: one of them is a training program of a backend.
        verdict: EXACT, DIFFERS or REFUSED.
        why: the refusal with its line, or the first difference.
    """

    upstream: str
    path: str
    programs: tuple[str, ...]
    trains: bool
    verdict: str
    why: str = ""

    @property
    def broken(self) -> str:
        """Why upstream cannot run it either (tools.bench.corpus_check); empty: it can."""
        return next((why for part, why in BROKEN.items() if part in self.path), "")


def upstream_of(text: str) -> Upstream:
    """Return what `PROJECT@VERSION=DIR` names."""
    name, _, folder = text.partition("=")
    project, _, version = name.partition("@")
    if not (project and version and Path(folder).is_dir()):
        raise ValueError(f"--upstream takes PROJECT@VERSION=DIR with a folder that exists, got {text!r}")
    return Upstream(name=project, version=version, folder=Path(folder).resolve())


def files_of(upstream: Upstream) -> list[str]:
    """Return all scripts of a checkout, and MindFormers' configurations."""
    found = [path for path in sorted(upstream.folder.rglob("*")) if path.is_file() and not path.is_symlink()]
    scripts = [path for path in found if path.suffix in SUFFIXES]
    configurations = [path for path in found if path.suffix == ".yaml" and "run_mode:" in path.read_text("utf-8")]
    return [path.relative_to(upstream.folder).as_posix() for path in (*scripts, *configurations)]


def measured(upstreams: Sequence[Upstream], root: Path, compare: Any, state: Path) -> Iterator[Script]:
    """Yield the outcome of each script; goes on where it was stopped.

    Args:
        compare: compares the words of a script's training command with bash's.
        state: file with what was measured, forgotten when the sources change.
    """
    sources = digest()
    known = load(state, sources, _script)
    for upstream in upstreams:
        for number, path in enumerate(files_of(upstream)):
            key = f"{upstream.title} {upstream.folder} {path}"
            if key not in known:
                known[key] = _measure(upstream, path, root, compare)
                if not number % 20:
                    save(state, sources, known)
            yield known[key]
        save(state, sources, known)


def _measure(upstream: Upstream, path: str, root: Path, compare: Any) -> Script:
    file = upstream.folder / path
    if file.suffix == ".yaml":
        mode = _run_mode(file)
        programs: tuple[str, ...] = (f"run_mode {mode}",)
        trains = mode in _TRAINING_MODES
    else:
        programs = _programs(upstream, path, root)
        trains = any(_is_training(each) for each in programs)
    code, message = launched(file)
    verdict, why = REFUSED, message
    if not code:
        words, differ = (True, "") if file.suffix == ".yaml" else compare(root, upstream.folder, path)
        unwritten = [each.flag for each in lost(read_file(file, ImportOptions())[0])]
        why = differ if words is False else f"not written again: {', '.join(unwritten)}" if unwritten else ""
        verdict = DIFFERS if why else EXACT
        if not why and words is None:
            verdict, why = DIFFERS, "bash starts no such command"
    return Script(
        upstream=upstream.title, path=path, programs=programs, trains=trains, verdict=verdict, why=why.strip()
    )


def launched(file: Path) -> tuple[int, str]:
    """Return the exit code of `launch import FILE` and its error messages."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = dispatch(["import", str(file)])
    return code, err.getvalue().replace(f"{file.parent}/", "")


def _run_mode(file: Path) -> Any:
    try:
        tree = yaml.safe_load(file.read_text(encoding="utf-8"))
    except yaml.YAMLError:
        return "unreadable"
    return tree.get("run_mode") if isinstance(tree, dict) else "unreadable"


def _programs(upstream: Upstream, path: str, root: Path) -> tuple[str, ...]:
    for variables in ({}, _PARAMETERS):
        found = programs_of(commands_of(root, upstream.folder, path, variables))
        if found:
            return tuple(dict.fromkeys(found))
    return ()


def _is_training(program: str) -> bool:
    name, _, command = program.partition(" ")
    scripts = {script.rpartition("/")[2] for _, entry in entries() for script in entry.scripts if "/" not in script}
    return name in scripts or any(command in entry.programs.get(name, ()) for _, entry in entries())


# -- the tables


def page(found: Sequence[Script]) -> str:
    """Return the table of docs/import.md, the refusals of training scripts, and what does not train, by name."""
    lines = [
        "| repository | scripts | do not train on a backend | of these refused | train | imported with the exact argv "
        "| refused or different | of these refused by upstream, too |",
        "|---|---|---|---|---|---|---|---|",
    ]
    titles = dict.fromkeys(each.upstream for each in found)
    lines += [_row(title, [each for each in found if each.upstream == title]) for title in titles]
    lines += [_row("all", found), ""]
    train = [each for each in found if each.trains]
    running = [each for each in train if each.verdict == EXACT or not each.broken]
    lines += [
        f"{share(train):.1%} of those that train, {share(running):.1%} of those that upstream's own parser takes.",
        *("", "| not imported with its exact argv | line and reason | upstream |", "|---|---|---|"),
    ]
    lines += [
        f"| {each.upstream} `{each.path}` | {_one_line(each.why)} | {_one_line(each.broken)} |"
        for each in train
        if each.verdict != EXACT
    ]
    others = [each for each in found if not each.trains]
    counts = Counter(_name_of(each) for each in others)
    lines += ["", "What the others start: " + ", ".join(f"{name} ({count})" for name, count in counts.most_common())]
    read = [f"{each.upstream} `{each.path}`" for each in others if each.verdict != REFUSED]
    return "\n".join(lines) + f". Bash starts nothing, and all the same imported: {', '.join(read) or 'none'}."


def share(found: Iterable[Script]) -> float:
    """Return the share of training scripts that are imported with the exact argv."""
    train = [each for each in found if each.trains]
    return sum(each.verdict == EXACT for each in train) / len(train) if train else 1.0


def reached(found: Iterable[Script]) -> bool:
    """Return whether enough of the training scripts that upstream's own parser takes are imported."""
    return share(each for each in found if each.verdict == EXACT or not each.broken) >= GOAL


def _row(title: str, found: Sequence[Script]) -> str:
    train = [each for each in found if each.trains]
    others = [each for each in found if not each.trains]
    left = [each for each in train if each.verdict != EXACT]
    cells = (
        *(title, len(found), len(others), sum(each.verdict == REFUSED for each in others), len(train)),
        *(f"{len(train) - len(left)} ({share(found):.1%})", len(left), sum(bool(each.broken) for each in left)),
    )
    return f"| {' | '.join(map(str, cells))} |"


def _name_of(each: Script) -> str:
    return each.programs[0] if each.programs else "nothing"


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|")[:300]


def details(found: Iterable[Script]) -> None:
    """Print every script that is not as it should be: refused, different, or imported although it does not train."""
    for each in found:
        if each.trains == (each.verdict != EXACT) or (not each.trains and each.verdict != REFUSED):
            mark = each.verdict if each.trains else f"does not train, {each.verdict}"
            print(f"{each.upstream} {each.path} [{', '.join(each.programs)}] {mark}: {each.why}", file=sys.stderr)


def _script(values: Mapping[str, Any]) -> Script:
    return Script(**{**values, "programs": tuple(values["programs"])})
