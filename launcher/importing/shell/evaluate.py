"""Walks a script's syntax tree in the order of execution and collects the commands it would start; runs nothing."""

import copy
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from launcher.importing.notes import ImportRefused
from launcher.importing.shell import patterns
from launcher.importing.shell.arithmetic import NotArithmetic, evaluate
from launcher.importing.shell.assign import Assignments
from launcher.importing.shell.builtins import BUILTINS, DEEPEST, Builtins, Stop
from launcher.importing.shell.capture import answered, captured
from launcher.importing.shell.conditions import Conditions
from launcher.importing.shell.effects import CARRIERS, QUESTIONS, assigned, has_effect, prepares, starts_training
from launcher.importing.shell.expand import Expander
from launcher.importing.shell.grammar import Node, line_of, parse, text_of
from launcher.importing.shell.guards import Guards
from launcher.importing.shell.placeholders import emptied, has_output, is_open, names, placeholder, retyped, shown
from launcher.importing.shell.scripts import (
    called_script,
    given_variables,
    heredoc,
    inner_script,
    reads_script,
    script_text,
)
from launcher.importing.shell.state import Command, State

_MOST_STEPS = 20_000
_MOST_STARTS = 100
# `while [ -d "$OUT" ]; do OUT=…`: nothing is there for a script that is read, not run.
_FILE_TEST = re.compile(r"!?\s*(\[\[?|test)\s+(!\s+)?-[a-hkprsuwxGLNOS]\s")


class Interpreter(Builtins):
    """Evaluates one script and what it sources."""

    def __init__(self, state: State, folder: Path | None) -> None:
        self.state = state
        self.folder = folder
        self.expander = Expander(state, self._capture)
        self.assignments = Assignments(self.expander)
        self.conditions = Conditions(self.expander)
        self.guards = Guards(state)
        self.steps = 0
        self.depth = 0

    def script(self, source: str, file: str) -> None:
        """Evaluate the whole text of a script."""
        self.state.sources.setdefault(file, source)
        root = parse(source.encode("utf-8"), file)
        try:
            self.block(root.children)
        except Stop:
            return

    # -- statements: each returns its exit status, None where it is not known

    def block(self, nodes: Iterable[Node]) -> bool | None:
        """Evaluate statements one after the other; the status is that of the last."""
        status: bool | None = True
        for node in nodes:
            if node.is_named and node.type not in ("comment", "heredoc_body"):
                status = self.statement(node)
        return status

    def statement(self, node: Node) -> bool | None:
        """Evaluate one statement."""
        self.steps += 1
        if self.steps > _MOST_STEPS:
            self.state.fail(f"more than {_MOST_STEPS} steps: a loop does not end statically", self._place(node))
            raise Stop("exit")
        handler = getattr(self, f"_{node.type}", None)
        if handler is None:
            return self.block(node.children)
        self.depth += 1
        try:
            if self.depth > 200:
                self.state.fail("the script is nested too deeply", self._place(node))
                raise Stop("exit")
            status = handler(node)
        finally:
            self.depth -= 1
        return None if status is None else bool(status)

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
            if status and condition and self.guards.ends(condition, body):
                continue
            if status is None:
                status = self._assumed_false(condition or [], body, branches[index + 1 :])
            if status:
                return self.block(body)
        return True

    def _assumed_false(
        self, condition: list[Node], body: list[Node], others: list[tuple[list[Node] | None, list[Node]]]
    ) -> bool:
        """Decide a condition that is not known: false, with a warning where that matters."""
        matters = has_effect(body) or any(has_effect(other) for _, other in others)
        if matters and condition:
            typed = text_of(condition[0]).split("\n")[0][:80]
            self.state.warn(
                f"`{typed}` cannot be decided without running it: taken as false", self._place(condition[0])
            )
        return False

    def _case_statement(self, node: Node) -> bool | None:
        value = self.expander.text(node.child_by_field_name("value"))
        if has_output(value):
            if has_effect(node.children):
                self.state.warn(f"case {shown(value)}: not known, no branch is taken", self._place(node))
            return None
        for name in names(value):
            self.state.assumed.setdefault(name, self._place(node))
        for item in node.children:
            if item.type != "case_item":
                continue
            choices = item.children_by_field_name("value")
            if any(patterns.matches(emptied(value), self.expander.text(choice)) for choice in choices):
                skipped = {choice.id for choice in choices}
                return self.block(child for child in item.children if child.id not in skipped)
        return True

    def _for_statement(self, node: Node) -> bool | None:
        name, body = text_of(node.child_by_field_name("variable")), node.child_by_field_name("body")
        values = node.children_by_field_name("value")
        has_list = any(child.type == "in" for child in node.children)
        words = [word for value in values for word in self.expander.words(value)]
        words = words if has_list else list(self.state.positional)
        unknown = [word for word in words if is_open(word)]
        if unknown:
            self.state.set(name, placeholder(f"${name}"))
            self._unresolved(node, body, f"what the loop runs over is not known: {shown(unknown[0])}")
            return None
        for word in words:
            self.state.set(name, word)
            if not self._round(body):
                break
        return True

    def _c_style_for_statement(self, node: Node) -> bool | None:
        body = node.child_by_field_name("body")
        parts = text_of(node).partition("((")[2].partition("))")[0].split(";")
        try:
            start, condition, update = (part.strip() for part in parts)
            evaluate(start, self.expander.look_up, self.state.set)
            while not condition or evaluate(condition, self.expander.look_up, self.state.set):
                if not self._round(body):
                    break
                evaluate(update, self.expander.look_up, self.state.set)
        except (NotArithmetic, ValueError):
            self._unresolved(node, body, "the loop's bounds are not known")
            return None
        return True

    def _while_statement(self, node: Node) -> bool | None:
        body = node.child_by_field_name("body")
        condition = node.children_by_field_name("condition")
        until = text_of(node.children[0]) == "until"
        rounds = 0
        while True:
            status = self.block(condition)
            if status is None and _FILE_TEST.match(text_of(condition[0])) and not starts_training(body):
                self._assumed_false(condition, [body], [])
                return True
            if status is None:
                self._unresolved(node, body, "the loop's condition is not known")
                return None
            before = dict(self.state.variables)
            if status == until or not self._round(body):
                return True
            rounds += 1
            if (before == self.state.variables or rounds > _MOST_STARTS) and starts_training(body):
                self.state.warn("the loop has no end that its text tells: it is read as far as here", self._place(node))
                return None

    def _round(self, body: Node) -> bool:
        """Evaluate the body of a loop once; tell whether the loop goes on."""
        self.steps += 1
        if self.steps > _MOST_STEPS:
            self.state.fail(f"more than {_MOST_STEPS} steps: the loop does not end statically", self._place(body))
            raise Stop("exit")
        try:
            self.block(body.children)
        except Stop as stop:
            if stop.kind in ("exit", "return"):
                raise
            return stop.kind == "continue"
        return True

    def _unresolved(self, node: Node, body: Node, why: str) -> None:
        """Leave open what a loop assigns; if it starts a training, that is a mistake, and its body is read once."""
        for name in assigned(body.children):
            self.state.set(name, placeholder(f"${name}"))
        if starts_training(body):
            self.state.fail(f"this loop cannot be resolved without running it: {why}", self._place(node))
            self._round(body)

    def _list(self, node: Node) -> bool | None:
        left, right = [child for child in node.children if child.is_named and child.type != "comment"]
        is_and = any(child.type == "&&" for child in node.children)
        status = self.statement(left)
        if status is None and is_and and prepares(left):
            status = True
        if status is None:
            return self._assumed_false([left], [right], []) if has_effect([right]) else None
        if status == is_and and self.guards.ends([left], [right]):
            return None
        return self.statement(right) if status == is_and else status

    def _negated_command(self, node: Node) -> bool | None:
        status = self.block(node.children)
        return None if status is None else not status

    def _pipeline(self, node: Node) -> bool | None:
        status, answer = self.block(node.children), answered(node, self)
        return status if answer is None else answer

    def _subshell(self, node: Node) -> bool | None:
        state = self.state
        saved = (dict(state.variables), set(state.exported), state.directory, list(state.positional))
        try:
            return self.block(node.children)
        except Stop as stop:
            if stop.kind != "exit":
                raise
            return None
        finally:
            state.variables, state.exported, state.directory, state.positional = saved

    def _redirected_statement(self, node: Node) -> bool | None:
        body, here = node.child_by_field_name("body"), heredoc(node, self.expander)
        if here is not None and here[0]:
            self.state.heredocs[here[0]] = here[1]
        elif here is not None and body is not None and body.type == "command":
            words = self._words(body, {})
            if words and reads_script(words):
                return self._text(retyped(here[1]), node)
        return True if body is None else self.statement(body)

    def _test_command(self, node: Node) -> bool | None:
        return self.conditions.test(node)

    def _compound_statement(self, node: Node) -> bool | None:
        return self.conditions.arithmetic(node) if text_of(node).startswith("((") else self.block(node.children)

    def _command_substitution(self, node: Node) -> bool | None:
        return self.block(node.children)

    # -- commands

    def _command(self, node: Node) -> bool | None:
        own: dict[str, str] = {}
        words = self._words(node, own)
        if not words:
            for name, value in own.items():
                self.state.set(name, value)
            return True
        return self.call(words, own, node)

    def _words(self, node: Node, own: dict[str, str]) -> list[str]:
        """Return the words of a command; the assignments before them go into `own`."""
        words: list[str] = []
        for child in node.children:
            if child.type == "variable_assignment":
                self.assignments.assign(child, own)
            elif child.is_named and child.type != "comment" and not child.type.endswith("_redirect"):
                words += self.expander.words(child)
        return words

    def call(self, words: list[str], own: Mapping[str, str], node: Node) -> bool | None:
        """Evaluate a command whose words are known: a function, a builtin, or a program to record."""
        words = words[1:] if words[0] == "command" and words[1:2] != ["-v"] and len(words) > 2 else words
        program = shown(words[0])
        if program.startswith("--"):
            self.state.warn(
                f"{program} stands where a command does: it and what follows are not part of the command above",
                self._place(node),
                "no blank and no comment after the backslash that continues a line",
            )
        if program in self.state.functions:
            return self._function(words)
        builtin = getattr(self, f"_do_{BUILTINS[program]}", None) if program in BUILTINS else None
        if builtin is not None:
            status = builtin(words, node)
            return None if status is None else bool(status)
        inner = inner_script(words)
        if inner is not None:
            return self._text(inner, node, {**own, **given_variables(words)})
        called = called_script(words)
        if called is not None and self._runs(*called, own, node):
            return None
        asks = program in QUESTIONS
        if not asks or program in CARRIERS:
            env = {**self.state.exports(), **own}
            self.state.commands.append(Command(words=tuple(words), env=env, where=self._place(node)))
        return None if asks else True

    def _function(self, words: list[str]) -> bool | None:
        state, body = self.state, self.state.functions[shown(words[0])]
        if self.depth > DEEPEST * 4:
            state.fail(f"function {words[0]} calls itself too deeply", f"{state.script}:{line_of(body)}")
            raise Stop("exit")
        saved, state.positional = state.positional, words[1:]
        try:
            return self.block(body.children)
        except Stop as stop:
            if stop.kind != "return":
                raise
            return None
        finally:
            state.positional = saved

    def _runs(self, path: str, arguments: list[str], own: Mapping[str, str], node: Node) -> bool:
        """Evaluate a script that is run as a program of its own; tell whether it could be read."""
        state, text = self.state, script_text(path, self.state, self.folder)
        if text is None or self.depth > DEEPEST or "msrun_launcher" in path:
            return False
        saved = (state.variables, state.exported, state.directory, state.positional, state.script, state.functions)
        given = {name: value for name, value in state.variables.items() if name in state.fixed}
        state.variables = {**state.exports(), **own, **given}
        state.exported, state.functions = set(state.variables), {}
        state.positional, state.script = arguments, shown(path)
        state.sources[state.script] = text
        try:
            self.block(parse(text.encode("utf-8"), state.script).children)
        except ImportRefused as error:
            state.problems += error.notes
        except Stop:
            pass
        finally:
            state.variables, state.exported, state.directory, state.positional, state.script, state.functions = saved
        return True

    def _text(self, source: str, node: Node, own: Mapping[str, str] | None = None) -> bool | None:
        """Evaluate text as a script (`eval`, `bash -c`)."""
        for name, value in (own or {}).items():
            self.state.set(name, value)
            self.state.exported.add(name)
        try:
            root = parse(source.encode("utf-8"), self.state.script, line_of(node))
        except ImportRefused as error:
            self.state.fail(f"what is evaluated here is not bash: {error.notes[0].message}", self._place(node))
            return None
        return self.block(root.children)

    def _capture(self, node: Node) -> str | None:
        return captured(node, self)


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
    """Return the state after the script: above all the commands that it would start.

    Raises:
        ImportRefused: the script is not bash.
    """
    Interpreter(state, folder).script(source, state.script)
    return copy.copy(state)
