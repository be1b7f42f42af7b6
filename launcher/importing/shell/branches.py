"""Branches of a script: `if`, `case`, `&&`, `||` and `!`; an undecided condition is taken as without files."""

from abc import abstractmethod
from collections.abc import Iterator

from launcher.importing.shell import patterns
from launcher.importing.shell.effects import has_effect, is_question, jumps, prepares
from launcher.importing.shell.grammar import Node, text_of
from launcher.importing.shell.guards import Guards
from launcher.importing.shell.loops import Loops
from launcher.importing.shell.placeholders import emptied, has_output, names, shown
from launcher.importing.shell.scripts import script_text
from launcher.importing.shell.state import Guess

_LONGEST_TYPED = 80


class Branches(Loops):
    """Evaluates conditions and what depends on them."""

    guards: Guards

    @abstractmethod
    def statement(self, node: Node) -> bool | None:
        """Evaluate one statement."""

    # -- undecided conditions

    def _matters(self, nodes: list[Node]) -> bool:
        """Return whether it makes a difference for the started commands that statements are evaluated or not."""
        prints = self.state.output is not None
        return has_effect(nodes, prints=prints) or bool(jumps(nodes) - {"exit", "fail"}) or self._sources(nodes)

    def _sources(self, nodes: list[Node]) -> bool:
        """Return whether statements source a script that can be read: what it sets would be lost without a word."""
        for node in nodes:
            if node.type != "command":
                if self._sources(node.children):
                    return True
            elif text_of(node.children[0]) in ("source", ".") and len(node.children) > 1:
                name = self.expander.text(node.children[1])
                if script_text(name, self.state, self.folder) is not None:
                    return True
        return False

    def _ends(self, nodes: list[Node]) -> bool:
        """Return whether statements only report that the script, or a function, fails."""
        return self.guards.exits(nodes) or (jumps(nodes) == {"fail"} and not self._matters(nodes))

    def _assumed(self, condition: Node, if_true: list[Node], if_false: list[Node] | None) -> bool:
        """Decide an unknown condition, with a warning if it matters; files are absent, guards hold.

        Args:
            if_false: None: further conditions.
        """
        value, why = self.state.guess.value, self.state.guess.why
        taken, other = (if_true, if_false) if value else (if_false, if_true)
        if taken is not None and other is not None and self._ends(taken) and not self._ends(other):
            value, why = not value, "since the script would end otherwise"
        if self._matters(if_true) or if_false is None or self._matters(if_false):
            self._warn_assumed(condition, value, why)
        return value

    def _warn_assumed(self, condition: Node, value: bool, why: str) -> None:
        typed = text_of(condition).split("\n")[0][:_LONGEST_TYPED]
        self.state.warn_assumed(typed, self._location(condition), value=value, why=why)

    def passed_over(self, condition: list[Node], body: Node) -> None:
        """Leave out a loop whose condition is unknown, with a warning if its body has an effect."""
        if has_effect([body], prints=self.state.output is not None):
            endless = self.state.guess.value
            why = "since the loop would not end otherwise" if endless else self.state.guess.why
            self._warn_assumed(condition[0], False, why)

    # -- statements

    def _if_statement(self, node: Node) -> bool | None:
        branches = _branches(node)
        for index, (condition, body) in enumerate(branches):
            status = True if condition is None else self.block(condition)
            if status and self.guards.ends(_tests(branches[: index + 1]), body):
                continue
            if status is None:
                others = branches[index + 1 :]
                rest = [] if not others else others[0][1] if others[0][0] is None else None
                matters = rest is not None or any(self._matters(each) for _, each in [(None, body), *others])
                assert condition is not None
                status = self._assumed(condition[0], body, rest) if matters else self.state.guess.value
            if status:
                return self.block(body)
        return True

    def _case_statement(self, node: Node) -> bool | None:
        value = self.expander.text(node.child_by_field_name("value"))
        if has_output(value):
            if has_effect(node.children, prints=self.state.output is not None):
                what = "no branch is taken" if self.state.output is None else "so is what it prints"
                self.state.leave_open()
                self.state.warn(f"case {shown(value)}: unknown, {what}", self._location(node))
            return None
        for name in names(value):
            self.state.assumed.setdefault(name, self._location(node))
        status: bool | None = True
        falls = False
        for item in node.children:
            if item.type != "case_item":
                continue
            choices = list(_words_of(item.children_by_field_name("value")))
            if falls or any(self._matches(value, choice) for choice in choices):
                if self.guards.ends([node.child_by_field_name("value")], item.children):
                    return None
                skipped = {part.id for choice in choices for part in choice}
                status = self.block(child for child in item.children if child.id not in skipped)
                falls = item.children[-1].type == ";&"
                if not falls and item.children[-1].type != ";;&":
                    return status
        return status

    def _matches(self, value: str, choice: list[Node]) -> bool:
        pattern = self.expander.pattern("".join(text_of(part) for part in choice))
        return patterns.matches(emptied(value), pattern, extended=self.state.extglob)

    def _list(self, node: Node) -> bool | None:
        left, right = [child for child in node.children if child.is_named and child.type != "comment"]
        is_and = any(child.type == "&&" for child in node.children)
        return self._joined(self.statement(left), left, is_and, right)

    def _joined(self, status: bool | None, left: Node, is_and: bool, right: Node) -> bool | None:
        """Evaluate what follows a statement of this status after `&&` or `||`."""
        if status is None and prepares(left):
            self.state.guess = Guess(value=True)
            status = True if is_and else None
        if status is None:
            if not self._matters([right]):
                return self._joined_unknown(is_and, right)
            status = self._assumed(left, [right] if is_and else [], [] if is_and else [right])
        elif status == is_and and self.guards.ends([left], [right]):
            return None
        return self.statement(right) if status == is_and else status

    def _joined_unknown(self, is_and: bool, right: Node) -> bool | None:
        """Return the status of `A && B` with A unknown and B of no effect."""
        guess = self.state.guess
        if guess.value != is_and or not is_question(right):
            return None
        status = self.statement(right)
        if status is None or status != is_and:
            return status
        self.state.guess = guess
        return None

    def _negated_command(self, node: Node) -> bool | None:
        status = self.block(node.children)
        return self._negated(status)

    def _negated(self, status: bool | None) -> bool | None:
        guess = self.state.guess
        self.state.guess = Guess(value=not guess.value, why=guess.why)
        return None if status is None else not status


def _words_of(parts: list[Node]) -> Iterator[list[Node]]:
    """Yield the parts of each word: the grammar divides `*"$A"*`."""
    word: list[Node] = []
    for part in parts:
        if word and word[-1].end_byte != part.start_byte:
            yield word
            word = []
        word.append(part)
    if word:
        yield word


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
