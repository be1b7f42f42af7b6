"""Parts of a script that are processes of their own: `( … )`, pipelines, `… &`, and output that is captured."""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from launcher.importing.shell.branches import Branches
from launcher.importing.shell.builtins import Stop, lines_of
from launcher.importing.shell.capture import answered, given_by, piped, printed
from launcher.importing.shell.effects import runs_for_ever
from launcher.importing.shell.grammar import Node, text_of

_MOST_PRINTING = 1000
_DEEPEST = 200


class Subshells(Branches):
    """Evaluates parts of a script that leave its variables as they are."""

    patience: int

    @abstractmethod
    def written(self, node: Node, first: list[Node]) -> bool:
        """Evaluate the last program of a pipeline if it writes a file that is followed."""

    @abstractmethod
    def read_by_program(self, node: Node, given: Callable[[], str | None]) -> bool:
        """Evaluate the last program of a pipeline if it takes words, or a script, from it."""

    @contextmanager
    def _as_subshell(self) -> Iterator[None]:
        """Restore what a process of its own cannot change."""
        state = self.state
        saved = (dict(state.variables), set(state.exported), state.directory, list(state.positional))
        folders = (state.previous_directory, list(state.directory_stack))
        shell = (dict(state.functions), dict(state.references), state.extglob, state.lastpipe)
        scopes = len(state.scopes)
        try:
            yield
        finally:
            state.variables, state.exported, state.directory, state.positional = saved
            state.functions, state.references, state.extglob, state.lastpipe = shell
            state.previous_directory, state.directory_stack = folders
            del state.scopes[scopes:]

    def _apart(self, evaluate: Callable[[], bool | None]) -> bool | None:
        """Evaluate statements in a process of their own, which leaves the script's variables as they are."""
        with self._as_subshell():
            try:
                return evaluate()
            except Stop:
                return self._ended()

    def _ended(self) -> bool | None:
        """Return whether the status given by `exit` or `return` is 0."""
        return None if self.state.status is None else self.state.status == 0

    def _in_background(self, node: Node) -> bool:
        """Evaluate a statement before `&`: a process of its own, the end of which the script does not wait for."""
        if not runs_for_ever(node, self.state):
            self._apart(lambda: self.statement(node))
        return True

    def _subshell(self, node: Node) -> bool | None:
        typed = text_of(node)
        if typed.startswith("((") and typed.endswith("))"):  # after `!` the grammar sees two subshells
            return self.conditions.arithmetic(node)
        return self._apart(lambda: self.block(node.children))

    def _pipeline(self, node: Node) -> bool | None:
        *first, last = [child for child in node.children if child.is_named and child.type != "comment"]
        if self.state.output is not None:
            self.state.output.append(printed(node, self))
            return answered(node, self)
        if first and (self.written(last, first) or self.read_by_program(last, lambda: given_by(first, self))):
            return True
        given = piped(node, self) if (first and "read" in text_of(last)) or "mapfile" in text_of(last) else None
        negated = bool(first) and first[0].type == "negated_command"  # as the grammar has it
        statuses: list[bool | None] = []
        if given is None:
            statuses = [self._apart(lambda part=part: self.statement(part)) for part in first]  # type: ignore[misc]
        status = self._last(last, given)
        self._note_programs([*(statuses or [True] * len(first)), status])
        if self.state.pipefail and False in statuses:
            status = False
        answer = answered(node, self)
        if answer is not None:
            return answer
        return self._negated(status) if negated else status

    def _note_programs(self, statuses: list[bool | None]) -> None:
        """Record the statuses of a pipeline's programs."""
        known = [str(int(not status)) for status in statuses if status is not None]
        self.state.variables.pop("PIPESTATUS", None)
        if len(known) == len(statuses):
            self.state.set("PIPESTATUS", known)

    def _last(self, node: Node, given: str | None) -> bool | None:
        """Evaluate the last program of a pipeline, which reads a text if it is known."""
        if given is not None and self.state.lastpipe:
            return self._reading(given, node)
        if given is not None:
            return self._apart(lambda: self._reading(given, node))
        return self.statement(node) if self.state.lastpipe else self._apart(lambda: self.statement(node))

    def _reading(self, given: str, node: Node) -> bool | None:
        """Evaluate a statement that reads a text."""
        self.state.inputs.append(lines_of(given))
        try:
            return self.statement(node)
        finally:
            self.state.inputs.pop()

    def printed_by(self, run: Callable[[], object]) -> str | None:
        """Return the output of a part of the script, evaluated in a subshell that starts no training."""
        state, depth, output = self.state, self.depth, self.state.output
        commands, patience = len(state.commands), self.patience
        self.patience = patience if output is not None else self.steps + _MOST_PRINTING
        found: list[str | None] = []
        self.depth += 1
        with self._as_subshell():
            state.output = found
            try:
                if self.depth < _DEEPEST:
                    run()
            except Stop:
                pass  # an `exit` ends the subshell only
            finally:
                state.output = output
                self.depth, self.patience = depth, patience
        unknown = depth + 1 >= _DEEPEST or len(state.commands) > commands
        del state.commands[commands:]
        return None if unknown or None in found else "".join(text for text in found if text is not None)
