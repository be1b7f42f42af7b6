"""Loops of a script: evaluated as often as they would run, or once if the number of iterations is unknown."""

import re
from abc import abstractmethod

from launcher.importing.shell.arithmetic import NotArithmetic, evaluate
from launcher.importing.shell.builtins import Builtins, Stop
from launcher.importing.shell.effects import assigned
from launcher.importing.shell.expand import has_quotes
from launcher.importing.shell.grammar import Node, parse, text_of
from launcher.importing.shell.placeholders import is_open, placeholder, shown

MOST_STEPS = 20_000
_MOST_STARTS = 100
# `while [ -d "$OUT" ]; do OUT=…`: no file exists for a script that is read, not run.
_FILE_TEST = re.compile(r"!?\s*(\[\[?|test)\s+(!\s+)?-[a-hkprsuwxGLNOS]\s")


class Loops(Builtins):
    """Evaluates `for`, `while` and `until`."""

    steps: int

    @abstractmethod
    def passed_over(self, condition: list[Node], body: Node) -> None:
        """Leave out a loop whose condition is unknown, with a warning if its body has an effect."""

    def _for_statement(self, node: Node) -> bool | None:
        name, body = text_of(node.child_by_field_name("variable")), node.child_by_field_name("body")
        values = node.children_by_field_name("value")
        has_list = any(child.type == "in" for child in node.children)
        found = [
            (word, value.type == "string" and has_quotes(value))
            for value in values
            for word in self.expander.words(value)
        ]
        found = found if has_list else [(word, False) for word in self.state.positional]
        # An unset variable in quotes is one item.
        unknown = [word for word, quoted in found if is_open(word) and not quoted]
        if unknown:
            self.state.set(name, placeholder(f"${name}", computed=True))
            self._unresolved(node, body, f"the items of the loop are unknown: {shown(unknown[0])}")
            return None
        for word, _ in found:
            if name in self.state.references:  # it refers to each variable in turn
                self.state.refer(name, word)
            else:
                self.state.set(name, word)
            if not self._round(body):
                break
        return True

    def _c_style_for_statement(self, node: Node) -> bool | None:
        body = node.child_by_field_name("body")
        inner = [
            child for child in node.children if child.end_byte <= body.start_byte and child.type not in ("for", "((")
        ]
        parts = "".join(text_of(child) for child in inner).partition("))")[0].split(";")
        try:
            start, condition, update = (part.strip() for part in parts)
            self._number(start)
            while not condition or self._number(condition):
                if not self._round(body):
                    break
                self._number(update)
        except (NotArithmetic, ValueError):
            self._unresolved(node, body, "the loop's bounds are unknown")
            return None
        return True

    def _number(self, text: str) -> int:
        """Return the value of an arithmetic expression given as text.

        Raises:
            NotArithmetic: it cannot be computed.
        """
        if "$" not in text:
            return evaluate(text, self.expander.look_up, self.expander.store)
        return self.expander.number(parse(f"(({text}))".encode(), self.state.script).children[0])

    def _while_statement(self, node: Node) -> bool | None:
        body = node.child_by_field_name("body")
        condition = node.children_by_field_name("condition")
        until = text_of(node.children[0]) == "until"
        rounds = 0
        while True:
            status = self.block(condition)
            if status is None and _FILE_TEST.match(text_of(condition[0])) and not self.state.starts_training(body):
                self.passed_over(condition, body)
                return True
            if status is None:
                self._unresolved(node, body, "the loop's condition is unknown")
                return None
            before = dict(self.state.variables)
            if status == until or not self._round(body):
                return True
            rounds += 1
            if (before == self.state.variables or rounds > _MOST_STARTS) and self.state.starts_training(body):
                self.state.warn("the end of the loop cannot be determined: it is read up to here", self._location(node))
                return None

    def _round(self, body: Node) -> bool:
        """Evaluate the body of a loop once; return whether the loop continues."""
        self.steps += 1
        if self.steps > MOST_STEPS:
            self.state.fail(f"more than {MOST_STEPS} steps: the loop does not end statically", self._location(body))
            raise Stop("exit")
        self.loops += 1
        try:
            self.block(body.children)
        except Stop as stop:
            if stop.kind in ("exit", "return"):
                raise
            if stop.levels > 1 and self.loops > 1:
                raise Stop(stop.kind, stop.levels - 1) from None
            return stop.kind == "continue"
        finally:
            self.loops -= 1
        return True

    def _unresolved(self, node: Node, body: Node, why: str) -> None:
        """Mark the variables of a loop as unknown; if it starts a training, add an error and evaluate its body once."""
        self.state.leave_open()
        for name in assigned(body.children, self.state.functions):
            self.state.set(name, placeholder(f"${name}", computed=True))
        if self.state.host.trains.search(text_of(body)):
            self.state.fail(f"this loop cannot be resolved without running it: {why}", self._location(node))
            self._round(body)
        elif self.state.starts_training(body):
            self.state.warn(f"this loop is read once: {why}", self._location(node))
            self._round(body)
