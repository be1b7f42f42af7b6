"""Walks a script's syntax tree in execution order and collects the commands it would start; runs nothing."""

import copy
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from launcher.budgets import spend
from launcher.importing.shell import files
from launcher.importing.shell.assign import Assignments
from launcher.importing.shell.builtins import BUILTINS, DEEPEST, Stop
from launcher.importing.shell.capture import (
    PRINTING,
    captured,
    content,
    given_by,
    is_redirected,
    of_process,
    printed,
    read_by,
)
from launcher.importing.shell.conditions import Conditions
from launcher.importing.shell.diagnostics import NotReadable
from launcher.importing.shell.effects import CARRIERS, QUESTIONS, prepares, prints_answer
from launcher.importing.shell.expand import Expander
from launcher.importing.shell.file_commands import FileCommands
from launcher.importing.shell.grammar import Node, line_of, parse, text_of
from launcher.importing.shell.guards import Guards
from launcher.importing.shell.loops import MOST_STEPS
from launcher.importing.shell.placeholders import is_open, retyped, shown
from launcher.importing.shell.scripts import (
    SHELLS,
    after_heredoc,
    called_script,
    given_arguments,
    given_variables,
    heredoc,
    heredoc_programs,
    inner_script,
    reads_script,
    script_text,
)
from launcher.importing.shell.state import Command, Guess, State
from launcher.importing.shell.subshells import Subshells
from launcher.importing.shell.xargs import command_lines

_GROUPS = ("compound_statement", "subshell", "pipeline", "for_statement", "if_statement")


class Interpreter(Subshells, FileCommands):
    """Evaluates one script and the scripts it sources."""

    def __init__(self, state: State, folder: Path | None) -> None:
        self.state = state
        self.folder = state.folder = folder
        self.expander = Expander(state, self._capture)
        self.assignments = Assignments(self.expander)
        self.conditions = Conditions(self.expander)
        self.guards = Guards(state)
        self.steps = 0
        self.depth = 0
        self.loops = 0
        self.patience = 0

    def script(self, source: str, file: str) -> None:
        """Evaluate the whole text of a script."""
        self.state.sources.setdefault(file, source)
        root = parse(source.encode("utf-8"), file)
        try:
            self.block(root.children)
        except Stop:
            return

    # -- statements: each returns whether it succeeded, None if unknown

    def block(self, nodes: Iterable[Node]) -> bool | None:
        """Evaluate statements in order; the status is that of the last."""
        status: bool | None = True
        for node in nodes:
            if node.is_named and node.type not in ("comment", "heredoc_body"):
                after = node.next_sibling
                in_background = after is not None and after.type == "&"
                status = self._in_background(node) if in_background else self.statement(node)
        return status

    def statement(self, node: Node) -> bool | None:
        """Evaluate one statement."""
        self.steps += 1
        if self.state.output is not None and self.steps > self.patience:
            self.state.leave_open()
            raise Stop("exit")
        if self.steps > MOST_STEPS:
            self.state.fail(f"more than {MOST_STEPS} steps: a loop does not end statically", self._location(node))
            raise Stop("exit")
        handler = getattr(self, f"_{node.type}", None)
        if handler is None:
            return self.block(node.children)
        self.depth += 1
        self.state.guess = Guess()
        try:
            if self.depth > 200:
                self.state.fail("the script is nested too deeply", self._location(node))
                raise Stop("exit")
            status = handler(node)
        finally:
            self.depth -= 1
        self._note_status(node, status)
        return None if status is None else bool(status)

    def _note_status(self, node: Node, status: bool | None) -> None:
        """Record a statement's status for `$?`; an exit code given by `return` stays."""
        state = self.state
        if status is None and node.type in ("command", "test_command"):
            state.status = 0 if prepares(node) else None
            state.undecided = (_short(node), self._location(node), state.guess)
        elif status is not None and (state.status is None or (state.status == 0) != status):
            state.status = int(not status)

    def _variable_assignment(self, node: Node) -> bool:
        self.state.substituted = True
        self.assignments.assign(node)
        return self.state.substituted

    def _variable_assignments(self, node: Node) -> bool:
        self.state.substituted = True
        for child in node.children:
            self.assignments.assign(child)
        return self.state.substituted

    def _declaration_command(self, node: Node) -> bool:
        self.assignments.declare(node)
        return True

    def _unset_command(self, node: Node) -> bool:
        self.assignments.unset(node)
        return True

    def _function_definition(self, node: Node) -> bool:
        self.state.functions[text_of(node.child_by_field_name("name"))] = node.child_by_field_name("body")
        return True

    def _redirected_statement(self, node: Node) -> bool | None:
        programs = heredoc_programs(node) if self.state.output is None else []
        if programs and self._read_by_last(node, programs[-1]):
            return True
        status, rest = self._redirected(node), after_heredoc(node)
        return status if rest is None else self._joined(status, node, *rest)

    def _redirected(self, node: Node) -> bool | None:
        body, output = node.child_by_field_name("body"), self.state.output
        named = body.child_by_field_name("name") if body is not None and body.type == "command" else None
        name, into = "" if named is None else text_of(named), files.targets(node, self.expander)
        if body is None or (into and name in PRINTING):
            files.write(into, "" if body is None else self._content(node, into), self.state, self._change(node))
            return True
        is_whole = body.type in _GROUPS or name in self.state.functions
        is_text = is_whole and any(files.is_followed(target) for target, _ in into)
        files.write(into, self._content(node, into) if is_text else None, self.state, self._change(node))
        if output is not None:
            if name in PRINTING:
                output.append(printed(node, self))
                return True
            if is_redirected(node):
                self.state.output = []
                try:
                    return self.statement(body)
                finally:
                    self.state.output = output
        heredoc_text = heredoc(node, self.expander)
        given = read_by(node, self, heredoc_text)
        if given is not None:
            return self._reading(given, body)
        if heredoc_text is not None and body.type == "command":
            words = self._words(body, {})
            if words and reads_script(words):
                return self._started_by(words, retyped(heredoc_text), node)
            if name == "tee":
                files.write(_of_tee(words), heredoc_text, self.state, self._change(node))
            elif words:
                self.note_edits(words, node, shown(heredoc_text))
        return self.statement(body)

    def _read_by_last(self, node: Node, last: Node) -> bool:
        """Evaluate the last program after `|` on the first line of a here-document if it reads what is known."""

        def given() -> str | None:
            return content(node, self, without_last=True)

        if self.read_by_program(last, given):
            return True
        text = given() if "read" in text_of(last) or "mapfile" in text_of(last) else None
        if text is None or is_open(text):
            return False
        self._last(last, text)
        return True

    def read_by_program(self, node: Node, given: Callable[[], str | None]) -> bool:
        """Evaluate `… | xargs PROGRAM` and `… | bash`; False: it is something else."""
        body = node.child_by_field_name("body") if node.type == "redirected_statement" else node
        name = body.child_by_field_name("name") if body is not None and body.type == "command" else None
        head = "" if name is None else text_of(name).rpartition("/")[2]
        if head not in ("xargs", *SHELLS):
            return False
        command_env: dict[str, str] = {}
        words = self._words(body, command_env)
        text = given() if head == "xargs" or reads_script(words) else None
        if head != "xargs":
            if text is not None:
                self._apart(lambda: self._started_by(words, retyped(text), node, command_env))
            return text is not None
        lines = None if text is None else command_lines(words, text)
        if lines is None and self.state.starts_training(body):
            self.state.fail("the words that xargs adds are not known without running it", self._location(node))
        for line in lines or ():
            self._apart(lambda line=line: self.call(line, command_env, body))  # type: ignore[misc]
        return True

    def _content(self, node: Node, into: list[tuple[str, bool]], given: str | None = None) -> str | None:
        """Return what a redirected statement writes into files."""
        before, self.state.follows = self.state.follows, any(files.is_followed(name) for name, _ in into)
        try:
            return content(node, self, given)
        finally:
            self.state.follows = before

    def written(self, node: Node, first: list[Node]) -> bool:
        """Evaluate `… | sed … > FILE` and `… | tee FILE`, given the last program; False: it is something else."""
        if node.type == "redirected_statement":
            into = files.targets(node, self.expander)
        else:
            is_tee = node.type == "command" and text_of(node.children[0]) == "tee"
            into = _of_tee(self._words(node, {})) if is_tee else []
        if not any(files.is_followed(name) for name, _ in into):
            return False
        before, self.state.follows = self.state.follows, True
        try:
            text = given_by(first, self)
            if node.type == "redirected_statement":
                text = None if text is None else content(node, self, text)
        finally:
            self.state.follows = before
        files.write(into, text, self.state, self._change(node.parent))
        return True

    def _test_command(self, node: Node) -> bool | None:
        return self.conditions.test(node)

    def _compound_statement(self, node: Node) -> bool | None:
        return self.conditions.arithmetic(node) if text_of(node).startswith("((") else self.block(node.children)

    def _command_substitution(self, node: Node) -> bool | None:
        return self.block(node.children)

    # -- commands

    def _command(self, node: Node) -> bool | None:
        command_env: dict[str, str] = {}
        words = self._words(node, command_env)
        if not words:
            for name, value in command_env.items():
                self.state.set(name, value)
            return True
        return self.call(words, command_env, node)

    def _words(self, node: Node, command_env: dict[str, str]) -> list[str]:
        """Return the words of a command; the assignments before them are stored in `command_env`."""
        words: list[str] = []
        children = node.children
        spend("words", len(children), self._location(node))
        for child in children:
            if child.type == "variable_assignment":
                self.assignments.assign(child, command_env)
            elif child.is_named and child.type != "comment" and not child.type.endswith("_redirect"):
                words += self.expander.words(child)
        for child in files.after_redirects(node):
            words += self.expander.words(child)
        return words

    def call(self, words: list[str], command_env: Mapping[str, str], node: Node) -> bool | None:
        """Evaluate a command with expanded words: a function, a builtin, or a program to record."""
        words = words[1:] if words[0] == "command" and words[1:2] != ["-v"] and len(words) > 2 else words
        program = shown(words[0])
        if program.startswith("--"):
            self.state.warn(
                f"{program} is in command position: it and what follows are not part of the command above",
                self._location(node),
                "no blank and no comment after the backslash that continues a line",
            )
        if program in self.state.functions:
            return self._function(words)
        if self.state.output is not None and program in PRINTING and prints_answer(words):
            self.state.output.append(printed(node, self))
        builtin = getattr(self, f"_do_{BUILTINS[program]}", None) if program in BUILTINS else None
        if builtin is not None:
            before = self.state.variables.get("IFS", " \t\n")
            if "IFS" in command_env:  # IFS=, read …
                self.state.set("IFS", command_env["IFS"])
            status = builtin(words, node)
            if "IFS" in command_env:
                self.state.set("IFS", before)
            return None if status is None else bool(status)
        self.note_edits(words, node)
        inner = inner_script(words)
        if inner is not None:
            return self._started_by(words, inner, node, {**command_env, **given_variables(words)})
        called = called_script(words)
        if called is not None and self._runs(words, *called, command_env, node):
            return self._ended() is not False  # success is assumed, as of any program
        is_query = program in QUESTIONS
        if is_query and prints_answer(words):
            self.state.leave_open()
        if not is_query or program in CARRIERS:
            env = {**self.state.exports(), **command_env}
            outer = self.state.outer
            spend("words", len(words), self._location(node))
            spend("commands", len(self.state.commands) + 1, self._location(node))
            self.state.commands.append(
                Command(
                    words=tuple(words),
                    env=env,
                    where=self._location(node),
                    outer=outer,
                    directory=self.state.directory,
                    files=dict(self.state.heredocs),
                    changes=dict(self.state.changes),
                )
            )
        return None if is_query else True

    def _function(self, words: list[str]) -> bool | None:
        state, body = self.state, self.state.functions[shown(words[0])]
        if self.depth > DEEPEST * 4:
            state.fail(f"function {words[0]} calls itself too deeply", f"{state.script}:{line_of(body)}")
            raise Stop("exit")
        saved, state.positional = state.positional, words[1:]
        loops, self.loops = self.loops, 0
        state.scopes.append({})
        try:
            return self.statement(body) if body.type == "subshell" else self.block(body.children)
        except Stop as stop:
            if stop.kind != "return":
                raise
            return self._ended()
        finally:
            state.positional, self.loops = saved, loops
            state.leave()

    def _runs(
        self, words: list[str], path: str, arguments: list[str], command_env: Mapping[str, str], node: Node
    ) -> bool:
        """Evaluate a script that runs as a separate program; return whether it could be read."""
        state, text = self.state, script_text(path, self.state, self.folder)
        state.leave_open()  # the output of a script is not evaluated
        if text is None or self.depth > DEEPEST or "msrun_launcher" in path or state.output is not None:
            return False
        saved = (state.variables, state.exported, state.directory, state.positional, state.script, state.functions)
        outer, state.outer = state.outer, (*state.outer, *state.host.with_header(words, text))
        given = {name: value for name, value in state.variables.items() if name in state.fixed}
        state.variables = {**state.exports(), **command_env, **state.host.variables(state.outer), **given}
        state.exported, state.functions = set(state.variables), {}
        state.positional, state.script = arguments, shown(path)
        state.sources[state.script] = text
        try:
            self.block(parse(text.encode("utf-8"), state.script).children)
        except NotReadable as error:
            state.problems.append(error.diagnostic)
        except Stop:
            pass  # an `exit` ends that script only
        finally:
            state.variables, state.exported, state.directory, state.positional, state.script, state.functions = saved
            state.outer = outer
        return True

    def _started_by(
        self, words: list[str], source: str, node: Node, command_env: Mapping[str, str] | None = None
    ) -> bool | None:
        """Evaluate the text of a script that a command starts (`bash -c`, `sbatch <<EOF`)."""

        def evaluate() -> bool | None:
            self.state.positional = given_arguments(words)
            return self._text(source, node, {**slurm, **(command_env or {})})

        outer, self.state.outer = self.state.outer, (*self.state.outer, *self.state.host.with_header(words, source))
        slurm = self.state.host.variables(self.state.outer[len(outer) :])
        try:
            return self._apart(evaluate)
        finally:
            self.state.outer = outer

    def _text(self, source: str, node: Node, command_env: Mapping[str, str] | None = None) -> bool | None:
        """Evaluate text as a script (`eval`, `bash -c`)."""
        for name, value in (command_env or {}).items():
            self.state.set(name, value)
            self.state.exported.add(name)
        try:
            # Leading empty lines align its line numbers with the enclosing script.
            root = parse(b"\n" * (line_of(node) - 1) + source.encode("utf-8"), self.state.script)
        except NotReadable as error:
            self.state.fail(f"what is evaluated here is not bash: {error.diagnostic.message}", self._location(node))
            return None
        return self.block(root.children)

    def _of_process(self, node: Node) -> str | None:
        text = of_process(node, self)
        return None if text is None else retyped(text)

    def _capture(self, node: Node) -> str | None:
        return captured(node, self)


def _short(node: Node) -> str:
    return text_of(node).split("\n")[0][:80]


def _of_tee(words: list[str]) -> list[tuple[str, bool]]:
    return [(shown(word), "-a" in words) for word in words[1:] if not word.startswith("-")]


def run_script(source: str, state: State, folder: Path | None) -> State:
    """Return the state after the script, including the commands that it would start.

    Raises:
        NotReadable: the script is not bash.
    """
    Interpreter(state, folder).script(source, state.script)
    return copy.copy(state)
