"""Finds training commands of any backend in a script: strips wrappers and launchers and identifies the entry point."""

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from itertools import pairwise
from typing import Any

from launcher.importing.containers import container_notes
from launcher.importing.launchers import LAUNCHERS, Started, msrun_script, strip_options, wrapper_cluster
from launcher.importing.notes import Note
from launcher.importing.other_programs import program_of_command, why_not
from launcher.importing.shell.placeholders import shown
from launcher.importing.shell.state import Change, Command
from launcher.importing.slurm import Request, request_of
from launcher.mapping.backend import Backend, Entry, backend_names, get_backend
from launcher.records import dataclass

_PYTHON_VALUES = frozenset({"-X", "-W"})
_TRAINING_NAME = re.compile(r"train|finetune|sft|rlhf")
_FEWEST_ARGUMENTS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """A training command.

    Attributes:
        program: program and sub-command, or the name of the script.
        backends: names of the backends whose entry point it may be.
        command: sub-command; empty: none.
        argv: arguments of the entry point; unset variables are marked.
        env: environment of the command.
        cluster: launcher options, as text: nodes, per_node, total, addr, port, restarts.
        launcher: name of the launcher; empty: none.
        where: `file:line`.
        slurm: the enclosing Slurm request.
        files, changes: files that the script wrote before, and those that it changed otherwise.
        directory: where it starts, from where the script does.
        before: commands before it that start no training.
        remarks: notes on what starts it and is no part of the job.
    """

    program: str
    backends: tuple[str, ...]
    command: str = ""
    argv: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cluster: Mapping[str, str] = field(default_factory=dict)
    launcher: str = ""
    where: str = ""
    slurm: Request = field(default_factory=Request)
    files: Mapping[str, str] = field(default_factory=dict)
    changes: Mapping[str, Change] = field(default_factory=dict)
    directory: str = "."
    before: tuple[Command, ...] = ()
    remarks: tuple[Note, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExcludedCommand:
    """A command that is not a training command of a backend, and why.

    Attributes:
        unknown: the program is unknown; its arguments may be those of a backend that the user names.
    """

    program: str
    why: str
    where: str
    unknown: bool = False


def entries() -> Iterator[tuple[Backend, Entry]]:
    """Yield every installed backend with its entry points."""
    for name in backend_names():
        backend = get_backend(name)
        yield backend, backend.entry


def find(commands: Sequence[Command], backend: str | None = None) -> tuple[list[Invocation], list[ExcludedCommand]]:
    """Return the training commands of a script, and its other commands, known ones first.

    Args:
        backend: scripts without a known entry point that look like training are attributed to this backend.
    """
    results = [recognise(command) for command in commands]
    for index, each in enumerate(results):
        if isinstance(each, Invocation) and backend is not None and backend not in each.backends:
            results[index] = recognise(commands[index], assume=backend)  # a fork's script: the user names the backend
    before: list[Command] = []
    for index, (each, command) in enumerate(zip(results, commands, strict=True)):
        if isinstance(each, Invocation):
            results[index] = dataclasses.replace(
                each, files=command.files, changes=command.changes, directory=command.directory, before=tuple(before)
            )
        else:
            before.append(command)
    found = [each for each in results if isinstance(each, Invocation)]
    found.sort(key=lambda each: backend is not None and backend not in each.backends)
    excluded = [each for each in results if isinstance(each, ExcludedCommand)]
    if not found and backend is not None:
        assumed = [
            _assumed(command, backend) for command, each in zip(commands, results, strict=True) if _is_unknown(each)
        ]
        found = [each for each in assumed if each is not None]
    return found, sorted(excluded, key=lambda other: other.unknown)


def _is_unknown(result: Invocation | ExcludedCommand | None) -> bool:
    return isinstance(result, ExcludedCommand) and result.unknown


def _assumed(command: Command, backend: str) -> Invocation | None:
    result = recognise(command, assume=backend)
    if not isinstance(result, Invocation):
        return None
    return dataclasses.replace(result, files=command.files, changes=command.changes, directory=command.directory)


def recognise(command: Command, assume: str | None = None) -> Invocation | ExcludedCommand | None:
    """Return the training command in a command; `ExcludedCommand`: it is not one; None: it starts no training.

    Args:
        assume: backend of a script that looks like training and is no known entry point.
    """
    plain = [shown(arg) for arg in command.words]
    result = _recognised(command, plain, assume)
    if isinstance(result, Invocation) and assume is None:
        return result
    other = program_of_command(plain) if result is None or getattr(result, "unknown", True) else None
    if other is None:
        return result
    return ExcludedCommand(program=_program(plain), why=why_not(other), where=command.where)


def _program(words: Sequence[str]) -> str:
    """Return the script or module that a command of another program starts, or its first words."""
    scripts = [word.rpartition("/")[2] for word in words if word.endswith(".py")]
    modules = [word for before, word in pairwise(words) if before in ("-m", "--module")]
    plain = [word for word in words if "=" not in word]
    return next(iter([*modules[-1:], *scripts]), " ".join(plain[:2]))


def _recognised(command: Command, plain: Sequence[str], assume: str | None) -> Invocation | ExcludedCommand | None:
    env = dict(command.env)
    for at, arg in enumerate(plain):
        head = arg.rpartition("/")[2]
        if "=" in arg and arg.split("=")[0].isidentifier() and not arg.startswith("-"):
            name, _, value = command.words[at].partition("=")
            env[name] = value
            continue
        started = _started(plain[at:], head)
        if started is None:
            continue
        # The stripped arguments are the first ones; the rest keeps its placeholder marks.
        inner = started.argv if head == "msrun_launcher.sh" else _tail(command.words, len(started.argv))
        above = (*command.outer, *plain[:at])
        slurm = request_of(above)
        env |= request_of(plain[:at]).exported
        cluster = {**slurm.cluster(), **wrapper_cluster(plain[:at]), **started.cluster}
        result = _entry(inner, started.module, env, cluster, head, command.where, assume)
        if isinstance(result, Invocation):
            remarks = tuple(container_notes([shown(word) for word in above], command.where))
            return dataclasses.replace(result, slurm=slurm, remarks=remarks)
        if result is not None:
            return result
        if head in LAUNCHERS or head.startswith("python"):
            return None
    return None


def _tail(argv: Sequence[str], count: int) -> tuple[str, ...]:
    return tuple(argv[len(argv) - count :]) if count else ()


def _started(argv: Sequence[str], head: str) -> Started | None:
    """Return what the arguments start if the first is known: a launcher, Python, a program or a script."""
    if head == "msrun_launcher.sh":
        return msrun_script(argv[1:])
    if head in LAUNCHERS:
        skip = 2 if head == "accelerate" and len(argv) > 1 and argv[1] == "launch" else 1
        return strip_options(argv[skip:], LAUNCHERS[head])
    if head.startswith("python") and head.replace("python", "").replace(".", "").isdigit() | (head == "python"):
        return _python(argv[1:])
    if any(
        head in entry.programs or f"{head} {argv[1] if len(argv) > 1 else ''}" in entry.excluded
        for _, entry in entries()
    ):
        return Started(argv=tuple(argv))
    if head.endswith(".py") and (_scripts(argv[0]) or _excluded(argv[0])):
        return Started(argv=tuple(argv))
    return None


def _python(argv: Sequence[str]) -> Started | None:
    at = 0
    while at < len(argv) and argv[at].startswith("-"):
        if argv[at] == "-m" and at + 1 < len(argv):
            module = argv[at + 1]
            if module in LAUNCHERS:
                return strip_options(argv[at + 2 :], LAUNCHERS[module])
            return Started(argv=tuple(argv[at + 1 :]), module=True)
        if argv[at] == "-c":
            return None
        at += 2 if argv[at] in _PYTHON_VALUES else 1
    return Started(argv=tuple(argv[at:])) if at < len(argv) else None


def _entry(
    argv: Sequence[str],
    module: bool,
    env: Mapping[str, str],
    cluster: Mapping[str, str],
    head: str,
    where: str,
    assume: str | None,
) -> Invocation | ExcludedCommand | None:
    if not argv:
        return None
    first, rest = shown(argv[0]), tuple(argv[1:])
    if first.rpartition("/")[2].startswith("python"):  # torchrun --no-python python script.py
        started = _python([shown(arg) for arg in rest])
        return (
            None
            if started is None
            else _entry(_tail(argv, len(started.argv)), started.module, env, cluster, head, where, assume)
        )
    launcher = head if head in LAUNCHERS or head == "msrun_launcher.sh" else ("torchrun" if cluster else "")
    details: dict[str, Any] = {"env": env, "cluster": cluster, "launcher": launcher, "where": where}
    program = first.rpartition("/")[2]
    command = shown(rest[0]) if rest else ""
    backends = tuple(backend.name for backend, entry in entries() if program in entry.programs)
    if backends:
        known = {name for backend, entry in entries() for name in entry.programs.get(program, ())}
        if command in known:
            driver = _driver(f"{program} {command}", [shown(arg) for arg in rest])
            if driver is not None:
                return ExcludedCommand(program=driver[0], why=driver[1], where=where)
            return Invocation(
                program=f"{program} {command}", backends=backends, command=command, argv=rest[1:], **details
            )
    excluded = None if _scripts(first) else _excluded(f"{first} {command}", where) or _excluded(first, where)
    if excluded is not None:
        return excluded
    if module and first == "coverage":
        at = next((index for index, arg in enumerate(rest) if shown(arg).endswith(".py")), len(rest))
        return _entry(rest[at:], False, env, cluster, head, where, assume)
    if module:
        first = first.replace(".", "/") + ".py"
    scripts = _scripts(first)
    if scripts:
        return Invocation(
            program=first.rpartition("/")[2],
            backends=tuple(scripts),
            command=next(iter(scripts.values())),
            argv=rest,
            **details,
        )
    return _excluded(first, where) or _unknown(first, rest, launcher, assume, details)


def _driver(program: str, argv: Sequence[str]) -> tuple[str, str] | None:
    """Return the other program that an option starts in place of a training, and why it is not imported."""
    for _, entry in entries():
        for (name, option), why in entry.drivers.items():
            if name == program and any(
                word == option and value.lower() != "false" for word, value in pairwise([*argv, ""])
            ):
                return f"{program} {option}", why
    return None


def _unknown(
    path: str, argv: tuple[str, ...], launcher: str, assume: str | None, details: Mapping[str, Any]
) -> Invocation | ExcludedCommand | None:
    """Classify a script with an unknown name: it may train if a launcher starts it or its name suggests training."""
    name = path.rpartition("/")[2]
    if not name.endswith(".py") or not (launcher or _TRAINING_NAME.search(name)) or len(argv) < _FEWEST_ARGUMENTS:
        return None
    forked = tuple(backend.name for backend, entry in entries() if _fork_of(entry, argv))
    if assume is not None or forked:
        return Invocation(program=name, backends=forked if assume is None else (assume,), argv=argv, **details)
    return ExcludedCommand(program=name, why="it is not a known entry point", where=details["where"], unknown=True)


def _fork_of(entry: Entry, argv: Sequence[str]) -> str:
    """Return the project whose script adds its own arguments to those of an entry point; empty: none known."""
    options = {shown(arg).partition("=")[0] for arg in argv}
    return next((project for option, project in entry.fork_options.items() if option in options), "")


def renamed_script_note(invocation: "Invocation", backend: Backend, version: str) -> Note | None:
    """Return the note that a script of another name is read, and will be started, as the backend's own script."""
    entry = backend.entry
    script = next(iter(entry.scripts), "")
    known = _scripts(invocation.program) and not _is_of_fork(invocation.program)
    own = backend.own_script(version, invocation.program)
    if not script or not invocation.program.endswith(".py") or known or own is not None:
        return None
    project = _fork_of(entry, invocation.argv)
    whose = f" of {project}" if project else ""
    return Note(
        message=f"{invocation.program}{whose} is read as {script}, which is what the job starts", where=invocation.where
    )


def _is_of_fork(program: str) -> bool:
    """Return whether a script is known only as one of the forks that the user added."""
    paths = (path for backend, _ in entries() for scripts in backend.own_scripts.values() for path in scripts)
    known = {path.rpartition("/")[2] for path in paths}
    return program in known and program not in {
        name for backend, entry in entries() for name in _official(backend, entry)
    }


def _official(backend: Backend, entry: Entry) -> tuple[str, ...]:
    own = {path.rpartition("/")[2] for scripts in backend.own_scripts.values() for path in scripts}
    return tuple(script for script in entry.scripts if script not in own)


def _scripts(path: str) -> dict[str, str]:
    """Return the backends that start this script, with the sub-command that it corresponds to."""
    ends = f"/{path}"
    return {
        backend.name: command
        for backend, entry in entries()
        for script, command in entry.scripts.items()
        if ends.endswith(f"/{script}")
    }


def _excluded(path: str, where: str = "") -> ExcludedCommand | None:
    for _, entry in entries():
        for program, why in entry.excluded.items():
            if f"/{path}".endswith(f"/{program}"):
                return ExcludedCommand(program=program, why=why, where=where)
    return None
