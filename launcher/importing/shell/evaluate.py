"""Walks a script's syntax tree in execution order and collects the commands it would start; runs nothing."""

import copy
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from launcher.budgets import spend
from launcher.importing.shell import files, patterns
from launcher.importing.shell.assign import Assignments
from launcher.importing.shell.builtins import BUILTINS, DEEPEST, Stop, lines_of
from launcher.importing.shell.capture import (
    PRINTING,
    answered,
    captured,
    content,
    is_redirected,
    piped,
    printed,
    read_by,
)
from launcher.importing.shell.conditions import Conditions
from launcher.importing.shell.diagnostics import NotReadable
from launcher.importing.shell.effects import CARRIERS, QUESTIONS, has_effect, prepares, runs_for_ever
from launcher.importing.shell.expand import Expander
from launcher.importing.shell.grammar import Node, line_of, parse, text_of
from launcher.importing.shell.guards import Guards
from launcher.importing.shell.loops import MOST_STEPS, Loops
from launcher.importing.shell.placeholders import emptied, has_output, names, retyped, shown
from launcher.importing.shell.scripts import (
    after_heredoc,
    called_script,
    given_variables,
    heredoc,
    inner_script,
    reads_script,
    script_text,
)
from launcher.importing.shell.state import Command, State

_MOST_PRINTING = 1000


class Interpreter(Loops):
    """Evaluates one script and the scripts it sources."""

    def __init__(self, state: State, folder: Path | None) -> None:
        self.state = state
        self.folder = folder
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

    def _in_background(self, node: Node) -> bool:
        """Evaluate a statement before `&`: a process of its own, the end of which the script does not wait for."""
        if not runs_for_ever(node, self.state):
            self._apart(lambda: self.statement(node))
        return True

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
        elif status is not None and (state.status is None or (state.status == 0) != status):
            state.status = int(not status)

    def _ended(self) -> bool | None:
        """Return whether the status given by `exit` or `return` is 0."""
        return None if self.state.status is None else self.state.status == 0

    def _variable_assignment(self, node: Node) -> bool:
        self.assignments.assign(node)
        return True

    def _variable_assignments(self, node: Node) -> bool:
        for child in node.children:
            self.assignments.assign(child)
        return True

    def _declaration_command(self, node: Node) -> bool:
        self.assignments.declare(node)
        return True

    def _unset_command(self, node: Node) -> bool:
        self.assignments.unset(node)
        return True

    def _function_definition(self, node: Node) -> bool:
        self.state.functions[text_of(node.child_by_field_name("name"))] = node.child_by_field_name("body")
        return True

    def _if_statement(self, node: Node) -> bool | None:
        branches = _branches(node)
        for index, (condition, body) in enumerate(branches):
            status = True if condition is None else self.block(condition)
            if status and self.guards.ends(_tests(branches[: index + 1]), body):
                continue
            if status is None:
                status = self._assumed(condition or [], body, branches[index + 1 :])
            if status:
                return self.block(body)
        return True

    def _assumed(
        self, condition: list[Node], body: list[Node], others: list[tuple[list[Node] | None, list[Node]]]
    ) -> bool:
        """Decide an unknown condition of `if`: false, unless the script would then exit."""
        if len(others) != 1 or others[0][0] is not None or not self.guards.exits(others[0][1]):
            return self.assumed_false(condition, [*body, *(node for _, other in others for node in other)])
        self.state.leave_open()
        typed = text_of(condition[0]).split("\n")[0][:80]
        message = f"`{typed}` cannot be decided without running it: taken as true, since the script would end otherwise"
        self.state.warn(message, self._location(condition[0]))
        return True

    def assumed_false(self, condition: list[Node], bodies: list[Node]) -> bool:
        """Treat an unknown condition as false, with a warning if one of the bodies has an effect."""
        self.state.leave_open()
        if condition and has_effect(bodies):
            typed = text_of(condition[0]).split("\n")[0][:80]
            self.state.warn(
                f"`{typed}` cannot be decided without running it: taken as false", self._location(condition[0])
            )
        return False

    def _case_statement(self, node: Node) -> bool | None:
        value = self.expander.text(node.child_by_field_name("value"))
        if has_output(value):
            if has_effect(node.children):
                self.state.warn(f"case {shown(value)}: unknown, no branch is taken", self._location(node))
            return None
        for name in names(value):
            self.state.assumed.setdefault(name, self._location(node))
        status: bool | None = True
        falls = False
        for item in node.children:
            if item.type != "case_item":
                continue
            choices = item.children_by_field_name("value")
            if falls or any(self._matches(value, choice) for choice in choices):
                if self.guards.ends([node.child_by_field_name("value")], item.children):
                    return None
                skipped = {choice.id for choice in choices}
                status = self.block(child for child in item.children if child.id not in skipped)
                falls = item.children[-1].type == ";&"
                if not falls and item.children[-1].type != ";;&":
                    return status
        return status

    def _matches(self, value: str, choice: Node) -> bool:
        return patterns.matches(emptied(value), self.expander.text(choice), extended=self.state.extglob)

    def _list(self, node: Node) -> bool | None:
        left, right = [child for child in node.children if child.is_named and child.type != "comment"]
        is_and = any(child.type == "&&" for child in node.children)
        return self._joined(self.statement(left), left, is_and, right)

    def _joined(self, status: bool | None, left: Node, is_and: bool, right: Node) -> bool | None:
        """Evaluate what follows a statement of this status after `&&` or `||`."""
        if status is None and is_and and prepares(left):
            status = True
        if status is None:
            return self.assumed_false([left], [right]) if has_effect([right]) else None
        if status == is_and and self.guards.ends([left], [right]):
            return None
        return self.statement(right) if status == is_and else status

    def _negated_command(self, node: Node) -> bool | None:
        status = self.block(node.children)
        return None if status is None else not status

    def _pipeline(self, node: Node) -> bool | None:
        *first, last = [child for child in node.children if child.is_named]
        if self.state.output is not None:
            self.state.output.append(printed(node, self))
            return answered(node, self)
        given = piped(node, self) if (first and "read" in text_of(last)) or "mapfile" in text_of(last) else None
        if given is not None:
            return self._reading(given, last)
        status, answer = self.block(node.children), answered(node, self)
        return status if answer is None else answer

    def _reading(self, given: str, node: Node) -> bool | None:
        """Evaluate a statement that reads a text."""
        self.state.inputs.append(lines_of(given))
        try:
            return self.statement(node)
        finally:
            self.state.inputs.pop()

    def printed_by(self, run: Callable[[], object]) -> str | None:
        """Return the output of a part of the script, evaluated in a subshell that starts no training."""
        state, depth = self.state, self.depth
        saved = (dict(state.variables), set(state.exported), state.directory, list(state.positional), state.output)
        commands, scopes = len(state.commands), len(state.scopes)
        patience = self.patience
        self.patience = patience if state.output is not None else self.steps + _MOST_PRINTING
        found: list[str | None] = []
        state.output = found
        self.depth += 1
        try:
            if self.depth < 200:
                run()
        except Stop:
            pass  # an `exit` ends the subshell only
        finally:
            state.variables, state.exported, state.directory, state.positional, state.output = saved
            self.depth, self.patience = depth, patience
            del state.scopes[scopes:]
        unknown = self.depth >= 199 or len(state.commands) > commands
        del state.commands[commands:]
        return None if unknown or None in found else "".join(text for text in found if text is not None)

    def _subshell(self, node: Node) -> bool | None:
        typed = text_of(node)
        if typed.startswith("((") and typed.endswith("))"):  # after `!` the grammar sees two subshells
            return self.conditions.arithmetic(node)
        return self._apart(lambda: self.block(node.children))

    def _apart(self, evaluate: Callable[[], bool | None]) -> bool | None:
        """Evaluate statements in a process of their own, which leaves the script's variables as they are."""
        state = self.state
        saved = (dict(state.variables), set(state.exported), state.directory, list(state.positional))
        try:
            return evaluate()
        except Stop:
            return self._ended()
        finally:
            state.variables, state.exported, state.directory, state.positional = saved

    def _redirected_statement(self, node: Node) -> bool | None:
        status, rest = self._redirected(node), after_heredoc(node)
        return status if rest is None else self._joined(status, node, *rest)

    def _redirected(self, node: Node) -> bool | None:
        body, output = node.child_by_field_name("body"), self.state.output
        named = body.child_by_field_name("name") if body is not None and body.type == "command" else None
        name, into = "" if named is None else text_of(named), files.targets(node, self.expander)
        if body is None or (into and name in PRINTING):
            files.write(into, "" if body is None else content(node, self), self.state)
            return True
        files.write(into, None, self.state)
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
                adds = "-a" in words
                files.write([(shown(w), adds) for w in words[1:] if not w.startswith("-")], heredoc_text, self.state)
        return self.statement(body)

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
        if self.state.output is not None and program in PRINTING:
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
        inner = inner_script(words)
        if inner is not None:
            return self._started_by(words, inner, node, {**command_env, **given_variables(words)})
        called = called_script(words)
        if called is not None and self._runs(words, *called, command_env, node):
            return self._ended() is not False  # success is assumed, as of any program
        is_query = program in QUESTIONS
        if not is_query or program in CARRIERS:
            env = {**self.state.exports(), **command_env}
            outer = self.state.outer
            spend("words", len(words), self._location(node))
            spend("commands", len(self.state.commands) + 1, self._location(node))
            self.state.commands.append(Command(words=tuple(words), env=env, where=self._location(node), outer=outer))
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
        outer, self.state.outer = self.state.outer, (*self.state.outer, *self.state.host.with_header(words, source))
        slurm = self.state.host.variables(self.state.outer[len(outer) :])
        try:
            return self._text(source, node, {**slurm, **(command_env or {})})
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

    def _capture(self, node: Node) -> str | None:
        return captured(node, self)


def _tests(branches: list[tuple[list[Node] | None, list[Node]]]) -> list[Node]:
    """Return the deciding conditions of the last of these branches: its own, or for `else` all before it."""
    condition = branches[-1][0]
    return condition if condition is not None else [node for test, _ in branches for node in test or []]


def _branches(node: Node) -> list[tuple[list[Node] | None, list[Node]]]:
    """Return (condition, body) of `if`, every `elif`, and `else` (without a condition)."""
    branches: list[tuple[list[Node] | None, list[Node]]] = []

    def split(clause: Node) -> tuple[list[Node], list[Node]]:
        condition: list[Node] = []
        body: list[Node] = []
        into = condition
        for child in clause.children:
            if child.type == "then":
                into = body
            elif child.type not in ("elif_clause", "else_clause", "if", "elif", "fi"):
                into.append(child)
        return condition, body

    branches.append(split(node))
    for child in node.children:
        if child.type == "elif_clause":
            branches.append(split(child))
        elif child.type == "else_clause":
            branches.append((None, [part for part in child.children if part.type != "else"]))
    return branches


def run_script(source: str, state: State, folder: Path | None) -> State:
    """Return the state after the script, including the commands that it would start.

    Raises:
        NotReadable: the script is not bash.
    """
    Interpreter(state, folder).script(source, state.script)
    return copy.copy(state)
