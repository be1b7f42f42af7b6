"""What a script knows while it is read: variables, functions, files it writes, commands it would start."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from launcher.budgets import spend
from launcher.importing.notes import Note
from launcher.importing.shell.grammar import Node

Variable: TypeAlias = str | list[str] | dict[str, str]


_MOST_ARGUMENTS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command that the script would start.

    Attributes:
        words: program and arguments; open values are marked (see `placeholders`).
        env: what the script exports, and assignments before the command.
        where: `file:line`.
        outer: command lines that start the script in which it stands (`sbatch`, `srun … bash -c`), one after the other.
    """

    words: tuple[str, ...]
    env: Mapping[str, str]
    where: str
    outer: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class State:
    """The state of the evaluation; changed as the script is read.

    Attributes:
        script: path of the script, for `$0`.
        directory: where `cd` has led; "." is where the script starts.
        fixed: variables that the user set (`--set`); assignments in the script do not change them.
        heredocs: what is in files that the script itself writes (`cat > FILE <<EOF`, `echo … > FILE`).
        assumed: variables that a condition read though nothing sets them, with the place.
        stopped: place of the `exit` that ended the script, if one did.
        references: variables that stand for another one (`declare -n`), with its name.
        inputs: lines, with their ends, of what the statements that run read, innermost last.
        output: what the function prints whose output is wanted, with None for what is not known; None: nobody wants it.
        scopes: for each function that runs, what its `local` variables were before.
        status: `$?`, the exit code of the last command; None: not known.
        outer: command lines that start what is being read (see `Command`).
    """

    script: str
    directory: str = "."
    variables: dict[str, Variable] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)
    fixed: frozenset[str] = frozenset()
    positional: list[str] = field(default_factory=list)
    functions: dict[str, Node] = field(default_factory=dict)
    heredocs: dict[str, str] = field(default_factory=dict)
    commands: list[Command] = field(default_factory=list)
    sources: dict[str, str] = field(default_factory=dict)
    problems: list[Note] = field(default_factory=list)
    warnings: list[Note] = field(default_factory=list)
    assumed: dict[str, str] = field(default_factory=dict)
    stopped: str = ""
    references: dict[str, str] = field(default_factory=dict)
    inputs: list[list[str]] = field(default_factory=list)
    output: list[str | None] | None = None
    scopes: list[dict[str, tuple[Variable | None, bool]]] = field(default_factory=list)
    status: int | None = 0
    outer: tuple[str, ...] = ()

    def set(self, name: str, value: Variable) -> None:
        """Assign a variable, unless the user fixed it."""
        name = self.references.get(name, name)
        if isinstance(value, list):
            spend("words", len(value), self.script)
        if name not in self.fixed:
            self.variables[name] = value

    def leave_open(self) -> None:
        """Note that what the script does, and prints, from here on is not known for sure."""
        if self.output is not None:
            self.output.append(None)

    def own(self, name: str) -> None:
        """Make a variable local to the function that runs, if one does."""
        if self.scopes and name not in self.fixed:
            self.scopes[-1].setdefault(name, (self.variables.get(name), name in self.exported))

    def leave(self) -> None:
        """Give the local variables of a function back what they held before."""
        for name, (value, exported) in self.scopes.pop().items():
            self.variables.pop(name, None)
            self.references.pop(name, None)
            if value is not None:
                self.variables[name] = value
            (self.exported.add if exported else self.exported.discard)(name)

    def arguments(self) -> list[str]:
        """Return the positional parameters: those of the call, or what the user set (`--set 1=VALUE`)."""
        given = [int(name) for name in self.variables if name.isdigit() and name != "0"]
        if self.positional or not given or max(given) > _MOST_ARGUMENTS:
            return list(self.positional)
        return [str(self.variables.get(str(index), "")) for index in range(1, max(given) + 1)]

    def exports(self) -> dict[str, str]:
        """Return the exported variables, in order of their first assignment."""
        return {name: value for name, value in self.variables.items() if name in self.exported and type(value) is str}

    def warn(self, message: str, where: str, *works: str) -> None:
        """Add a warning, once."""
        note = Note(message=message, where=where, works=works)
        if note not in self.warnings:
            self.warnings.append(note)

    def fail(self, message: str, where: str, *works: str) -> None:
        """Add a reason for which the script cannot be read as a whole."""
        note = Note(message=message, where=where, works=works)
        if note not in self.problems:
            self.problems.append(note)
