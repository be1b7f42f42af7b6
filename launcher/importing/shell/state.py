"""State of a script while it is evaluated: variables, functions, files it writes, commands it would start."""

import os.path
import re
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path, PurePosixPath
from typing import TypeAlias

from launcher.budgets import spend
from launcher.importing.shell.diagnostics import Diagnostic
from launcher.importing.shell.grammar import Node, text_of
from launcher.importing.shell.host import Host
from launcher.importing.shell.placeholders import shown
from launcher.records import dataclass
from launcher.syntax import is_count

Variable: TypeAlias = str | list[str] | dict[str, str]


_MOST_ARGUMENTS = 1000
_OF_FILES = ("-a", "-d", "-e", "-f", "-r", "-s", "-w", "-x")
_MOST_REFERENCES = 8  # as in bash
_NAMED = re.compile(r"[A-Za-z_]\w*(?:\[[^]]+\])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Guess:
    """What an unknown status is taken as, and why."""

    value: bool = False
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of a file that is not followed.

    Attributes:
        how: the command, as typed.
        where: `file:line`.
        removes: the file is removed by it.
    """

    how: str
    where: str
    removes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command that the script would start.

    Attributes:
        words: program and arguments; unset values are marked (see `placeholders`).
        env: exported variables, and assignments before the command.
        where: `file:line`.
        outer: command lines that start the enclosing script (`sbatch`, `srun … bash -c`), concatenated.
        directory: current directory, from where the script starts.
        files, changes: files that the script wrote before, and those that it changed otherwise.
    """

    words: tuple[str, ...]
    env: Mapping[str, str]
    where: str
    outer: tuple[str, ...] = ()
    directory: str = "."
    files: Mapping[str, str] = field(default_factory=dict)
    changes: Mapping[str, Change] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class State:
    """The state of the evaluation; updated as the script is read.

    Attributes:
        script: path of the script, for `$0`.
        directory: current directory after `cd`; "." is the directory in which the script starts.
        previous_directory: the directory before the last `cd`; empty: there was none.
        directory_stack: the directories that `pushd` left, last one last.
        fixed: variables that the user set (`--set`); assignments in the script do not change them.
        heredocs: content of files that the script writes (`cat > FILE <<EOF`, `echo … > FILE`), by normal path.
        changes: files that the script changes in a way that is not followed, or removes.
        made: folders and files that the script makes (`mkdir -p`, `touch`), by normal path, and whether it is a folder.
        folder: folder of the script, for the files that it copies or edits.
        follows: whether what is evaluated is written to such a file, so that it reads those on disk, too.
        globs: paths with `*` or `?` that bash replaces by the files of the machine, with the place.
        assumed: unset variables that a condition has read, with the place.
        defaulted: unset variables that the script reads with a default (`${N:-0}`), and so knows to be unset.
        substituted: whether the last `$(…)` succeeded, as far as it is known.
        stopped: place of the `exit` that ended the script, if one did.
        references: what name references (`declare -n`) refer to, `A` or `A[1]`, by name; empty: nothing yet.
        inputs: input lines, with their line ends, of the statements being evaluated, innermost last.
        output: output of a function whose output is captured, None items for unknown parts; None: not captured.
        scopes: for each function being evaluated, previous values of its `local` variables.
        extglob: whether `shopt -s extglob` holds.
        lastpipe: whether `shopt -s lastpipe` holds: the script itself evaluates the last program of a pipeline.
        guess: what the status of the last statement is taken as if it is unknown.
        undecided: the last statement of unknown status: its text, place and guess.
        pipefail: whether `set -o pipefail` holds: a pipeline fails with any of its programs.
        status: `$?`, the exit code of the last command; None: unknown.
        outer: command lines that start the current script (see `Command`).
        host: what the caller knows of programs.
    """

    script: str
    directory: str = "."
    previous_directory: str = ""
    directory_stack: list[str] = field(default_factory=list)
    variables: dict[str, Variable] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)
    fixed: frozenset[str] = frozenset()
    positional: list[str] = field(default_factory=list)
    functions: dict[str, Node] = field(default_factory=dict)
    heredocs: dict[str, str] = field(default_factory=dict)
    changes: dict[str, Change] = field(default_factory=dict)
    made: dict[str, bool] = field(default_factory=dict)
    folder: Path | None = None
    follows: bool = False
    commands: list[Command] = field(default_factory=list)
    sources: dict[str, str] = field(default_factory=dict)
    problems: list[Diagnostic] = field(default_factory=list)
    warnings: list[Diagnostic] = field(default_factory=list)
    globs: dict[str, str] = field(default_factory=dict)
    assumed: dict[str, str] = field(default_factory=dict)
    defaulted: set[str] = field(default_factory=set)
    substituted: bool = True
    stopped: str = ""
    references: dict[str, str] = field(default_factory=dict)
    inputs: list[list[str]] = field(default_factory=list)
    output: list[str | None] | None = None
    scopes: list[dict[str, tuple[Variable | None, bool, str | None]]] = field(default_factory=list)
    extglob: bool = False
    lastpipe: bool = False
    guess: Guess = field(default_factory=Guess)
    undecided: tuple[str, str, Guess] | None = None
    pipefail: bool = False
    status: int | None = 0
    outer: tuple[str, ...] = ()
    host: Host = field(default_factory=Host)

    def named(self, name: str) -> str:
        """Return the variable that a name stands for: what a name reference refers to, or itself."""
        for _ in range(_MOST_REFERENCES):
            target = self.references.get(name)
            if not target:
                break
            name = target
        return name

    def refer(self, name: str, target: Variable) -> None:
        """Make a name reference refer to a variable."""
        if isinstance(target, str) and _NAMED.fullmatch(target):
            self.references[name] = target

    def get(self, name: str) -> Variable | None:
        """Return what the script, or its user, set a variable to."""
        return self.variables.get(self.named(name))

    def set(self, name: str, value: Variable) -> None:
        """Assign a variable, unless the user fixed it."""
        if self.references.get(name) == "":
            self.refer(name, value)
            return
        name = self.named(name)
        if isinstance(value, list):
            spend("words", len(value), self.script)
        if name not in self.fixed:
            self.variables[name] = value

    def change_directory(self, folder: str) -> None:
        """Change the current directory."""
        text = shown(folder)
        is_whole = os.path.isabs(text) or text.startswith("${HOME}")
        joined = text if is_whole else os.path.join(self.directory, text)
        normal = os.path.normpath(joined)
        # `$X/..` is not known.
        kept = normal if normal.count("$") == joined.count("$") else str(PurePosixPath(joined))
        self.previous_directory, self.directory = self.directory, kept

    def path(self, name: str) -> str:
        """Return the normal path of a file, from where the script starts."""
        plain = os.path.normpath(shown(name))
        if self.directory == "." or os.path.isabs(plain):
            return plain
        joined = os.path.normpath(os.path.join(self.directory, plain))
        is_known = joined in self.heredocs or joined in self.changes
        # A folder that is not known may be the same as before.
        return plain if "$" in self.directory and not is_known and plain in self.heredocs else joined

    def file_test(self, operator: str, name: str) -> bool | None:
        """Return the answer of `[ -f NAME ]` for what the script itself makes or removes; None: not known."""
        name = self.path(name)
        change = self.changes.get(name)
        if change is not None and change.removes:
            return False if operator in _OF_FILES else None
        if name in self.heredocs or change is not None or self.made.get(name) is False:
            if operator == "-s":
                return bool(self.heredocs[name]) if name in self.heredocs else None
            return {"-d": False, "-L": None, "-h": None, "-x": None}.get(operator, operator in _OF_FILES or None)
        return (
            operator in ("-d", "-e", "-a", "-r", "-w", "-x") if self.made.get(name) and operator in _OF_FILES else None
        )

    def last_status(self) -> str | None:
        """Return `$?`; None: unknown. Where a file decides it, a warning says what is taken."""
        if self.status is None and self.undecided is not None and self.undecided[2].why:
            typed, where, guess = self.undecided
            self.warn_assumed(typed, where, value=guess.value, why=guess.why)
            return str(int(not guess.value))
        return None if self.status is None else str(self.status)

    def warn_assumed(self, typed: str, where: str, *, value: bool, why: str) -> None:
        """Add a warning on a condition that is taken as true or false."""
        message = f"`{typed}` cannot be decided without running it: taken as {'true' if value else 'false'}"
        self.warn(f"{message}, {why}" if why else message, where)

    def leave_open(self) -> None:
        """Record that the further effects and output of the script are uncertain."""
        if self.output is not None:
            self.output.append(None)

    def declare_local(self, name: str) -> None:
        """Make a variable local to the current function, if any."""
        if self.scopes and name not in self.fixed:
            self.scopes[-1].setdefault(
                name, (self.variables.get(name), name in self.exported, self.references.pop(name, None))
            )

    def leave(self) -> None:
        """Restore the previous values of a function's local variables."""
        for name, (value, exported, target) in self.scopes.pop().items():
            self.variables.pop(name, None)
            self.references.pop(name, None)
            if value is not None:
                self.variables[name] = value
            if target is not None:
                self.references[name] = target
            (self.exported.add if exported else self.exported.discard)(name)

    def arguments(self) -> list[str]:
        """Return the positional parameters: those of the call, or those set by the user (`--set 1=VALUE`)."""
        given = [int(name) for name in self.variables if is_count(name) and name != "0"]
        if self.positional or not given or max(given) > _MOST_ARGUMENTS:
            return list(self.positional)
        return [str(self.variables.get(str(index), "")) for index in range(1, max(given) + 1)]

    def starts_training(self, body: Node) -> bool:
        """Return whether a part of the script may start a training."""
        return self.host.starts.search(text_of(body)) is not None

    def exports(self) -> dict[str, str]:
        """Return the exported variables, in order of their first assignment."""
        return {name: value for name, value in self.variables.items() if name in self.exported and type(value) is str}

    def warn(self, message: str, where: str, *works: str) -> None:
        """Add a warning, once."""
        diagnostic = Diagnostic(message=message, where=where, works=works)
        if diagnostic not in self.warnings:
            self.warnings.append(diagnostic)

    def fail(self, message: str, where: str, *works: str) -> None:
        """Add a reason for which the script as a whole cannot be read."""
        diagnostic = Diagnostic(message=message, where=where, works=works)
        if diagnostic not in self.problems:
            self.problems.append(diagnostic)
