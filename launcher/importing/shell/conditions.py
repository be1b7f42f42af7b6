"""Conditions of a script that can be decided without running it: true, false, or None for unknown."""

import re

from launcher.importing.shell import patterns
from launcher.importing.shell.arithmetic import NotArithmetic, evaluate
from launcher.importing.shell.expand import Expander
from launcher.importing.shell.filters import CLASSES
from launcher.importing.shell.grammar import Node, line_of, parse, text_of
from launcher.importing.shell.placeholders import emptied, has_output, names

_NUMBERS = {
    "-eq": lambda a, b: a == b,
    "-ne": lambda a, b: a != b,
    "-lt": lambda a, b: a < b,
    "-le": lambda a, b: a <= b,
    "-gt": lambda a, b: a > b,
    "-ge": lambda a, b: a >= b,
}
_JOINED = re.compile(r"\s-[ao]\s|^\[ !\s")
_PUNCTUATION = frozenset({"[", "]", "[[", "]]", "(", ")", "((", "))"})


class Conditions:
    """Evaluates `[ … ]`, `[[ … ]]` and `(( … ))` against the state of a script."""

    def __init__(self, expander: Expander) -> None:
        self.expander = expander
        self.state = expander.state

    def arithmetic(self, node: Node) -> bool | None:
        """Evaluate `(( … ))`."""
        try:
            return self.expander.number(node) != 0
        except NotArithmetic:
            return None

    def test(self, node: Node) -> bool | None:
        """Evaluate a test_command."""
        if text_of(node).startswith("(("):
            return self.arithmetic(node)
        inner = [child for child in node.children if child.type not in _PUNCTUATION]
        typed = text_of(node)
        if typed.startswith("[ ") and _JOINED.search(typed):  # the grammar parses `-a` and `!` as in bash's [[
            command = parse(f"test {typed[2:-1]}".encode(), self.state.script, line_of(node)).children[0]
            return self.words([word for child in command.children[1:] for word in self.expander.words(child)])
        return self.decide(inner[0]) if len(inner) == 1 else None

    def decide(self, node: Node) -> bool | None:
        """Evaluate an expression inside brackets."""
        kind = node.type
        if kind == "parenthesized_expression":
            inner = [child for child in node.children if child.type not in _PUNCTUATION]
            return self.decide(inner[0]) if len(inner) == 1 else None
        if kind == "unary_expression":
            return self._unary(node)
        if kind == "binary_expression":
            return self._binary(node)
        text = self._text(node)
        return None if text is None else text != ""

    def words(self, words: list[str]) -> bool | None:
        """Evaluate `test WORDS`: `-o` binds least, then `-a`, then `!`; files are not checked."""
        for sign, joined in (("-o", _either), ("-a", _both)):
            if sign in words[1:-1]:
                at = words.index(sign, 1)
                return joined(self.words(words[:at]), self.words(words[at + 1 :]))
        if len(words) > 1 and words[0] == "!":
            value = self.words(words[1:])
            return None if value is None else not value
        if any(has_output(word) for word in words) or len(words) > 3:
            return None
        words = [emptied(word) for word in words]
        if len(words) < 2:
            return bool(words) and words[0] != ""
        if len(words) == 2:
            return (words[1] == "") == (words[0] == "-z") if words[0] in ("-z", "-n") else None
        if words[1] in ("=", "==", "!="):
            return (words[0] == words[2]) == (words[1] != "!=")
        if words[1] in _NUMBERS and all(re.fullmatch(r"-?\d+", word) for word in words[::2]):
            return bool(_NUMBERS[words[1]](int(words[0]), int(words[2])))
        return None

    def _unary(self, node: Node) -> bool | None:
        operator = text_of(node.children[0])
        operand = node.children[-1]
        if operator == "!":
            value = self.decide(operand)
            return None if value is None else not value
        if operator == "-v":
            return self.expander.value(text_of(operand).strip("\"'")) is not None
        if operator in ("-z", "-n"):
            text = self._text(operand)
            return None if text is None else (text == "") == (operator == "-z")
        return None  # files and terminals are not checked

    def _binary(self, node: Node) -> bool | None:
        operator_node = node.child_by_field_name("operator")
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        if operator_node is None or left is None or right is None:
            return None
        operator = text_of(operator_node)
        if operator in ("&&", "-a"):
            return _both(self.decide(left), self.decide(right))
        if operator in ("||", "-o"):
            return _either(self.decide(left), self.decide(right))
        if operator in _NUMBERS:
            return self._compared(left, operator, right)
        return self._strings(left, operator, right)

    def _compared(self, left: Node, operator: str, right: Node) -> bool | None:
        try:
            numbers = [evaluate(self._text(side) or "", self.expander.look_up) for side in (left, right)]
        except NotArithmetic:
            return None
        if any(self._text(side) in (None, "") for side in (left, right)):
            return None
        return bool(_NUMBERS[operator](*numbers))

    def _strings(self, left: Node, operator: str, right: Node) -> bool | None:
        first, second = self._text(left), self._text(right)
        if first is None or second is None:
            return None
        if operator in ("=", "==", "!="):
            quoted = right.type in ("string", "raw_string")
            # In [[ ]] extended patterns hold without `shopt -s extglob`, too.
            same = first == second if quoted else patterns.matches(first, second, extended=True)
            return same == (operator != "!=")
        if operator in ("<", ">"):
            return first < second if operator == "<" else first > second
        if operator == "=~":
            return self._searched(first, second)
        return None

    def _searched(self, text: str, pattern: str) -> bool | None:
        """Evaluate `[[ text =~ pattern ]]`; groups are stored in BASH_REMATCH."""
        # Repeated groups can take exponential time, and comparing names does not need them.
        if len(pattern) > 200 or len(text) > 2000 or re.search(r"\)[+*{]", pattern):
            return None
        pattern = re.sub(r"\[\[:(\w+):\]\]", lambda found: CLASSES.get(found.group(1), "(?!)"), pattern)
        try:
            found = re.search(pattern, text)
        except re.error:
            return None
        if found is not None:
            self.state.set("BASH_REMATCH", [found.group(), *(each or "" for each in found.groups())])
        return found is not None

    def _text(self, node: Node) -> str | None:
        """Return an operand's text; unset variables are empty and recorded as assumed; None for unknown output."""
        text = self.expander.text(node)
        if has_output(text):
            return None
        for name in names(text):
            self.state.assumed.setdefault(name, f"{self.state.script}:{line_of(node)}")
        return emptied(text)


def _both(left: bool | None, right: bool | None) -> bool | None:
    if left is False or right is False:
        return False
    return None if left is None or right is None else True


def _either(left: bool | None, right: bool | None) -> bool | None:
    if left is True or right is True:
        return True
    return None if left is None or right is None else False
