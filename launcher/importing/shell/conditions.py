"""Conditions of a script that can be decided without running it: true, false, or None for unknown."""

import re
from collections.abc import Callable, Iterator, Sequence

from launcher.importing.shell import patterns
from launcher.importing.shell.arithmetic import NotArithmetic, evaluate
from launcher.importing.shell.expand import ALWAYS_SET, Expander, has_quotes
from launcher.importing.shell.grammar import Node, line_of, parse, text_of
from launcher.importing.shell.placeholders import emptied, has_output, names, placeholder
from launcher.importing.shell.posix import with_classes
from launcher.importing.shell.state import Guess

_NUMBERS = {
    "-eq": lambda a, b: a == b,
    "-ne": lambda a, b: a != b,
    "-lt": lambda a, b: a < b,
    "-le": lambda a, b: a <= b,
    "-gt": lambda a, b: a > b,
    "-ge": lambda a, b: a >= b,
}
_ORDERS = {"<": lambda a, b: a < b, ">": lambda a, b: a > b}
_EQUALS = ("=", "==", "!=")
_LETTERS = frozenset(f"-{letter}" for letter in "abcdefghkoprstuvwxGLNORS")  # of files, terminals and options
# of files, terminals and named pipes; not of options
_FILES = (_LETTERS - {"-o", "-v", "-R"}) | {"-ef", "-nt", "-ot"}
_ABSENT = "since files are taken as absent"
_INTEGER = re.compile(r"\s*[-+]?\d+\s*")
_EXPRESSIONS = ("binary_expression", "unary_expression", "parenthesized_expression")
_PUNCTUATION = frozenset({"[", "]", "[[", "]]", "((", "))"})


class Conditions:
    """Evaluates `[ … ]`, `[[ … ]]` and `(( … ))` against the state of a script."""

    def __init__(self, expander: Expander) -> None:
        self.expander = expander
        self.state = expander.state
        self._absent = False  # whether files are taken as absent

    def _guessed(self, evaluate: Callable[[], bool | None]) -> bool | None:
        """Return the value of a test; where files decide it, None, and the value without files is guessed."""
        value = evaluate()
        if value is None and not self._absent:
            self._absent = True
            try:
                absent = evaluate()
            finally:
                self._absent = False
            self.state.guess = Guess() if absent is None else Guess(value=absent, why=_ABSENT)
        return value

    def file(self, operator: str, name: str | None = None) -> bool | None:
        """Return the answer of a test of a file, or a terminal: unknown, and without files false."""
        known = None if name is None else self.state.file_test(operator, name)
        return False if known is None and self._absent and operator in _FILES else known

    def arithmetic(self, node: Node) -> bool | None:
        """Evaluate `(( … ))`; unset variables are empty and recorded as assumed."""
        try:
            return self.expander.number(node, self._assumed_at(node)) != 0
        except NotArithmetic:
            return None

    def test(self, node: Node) -> bool | None:
        """Evaluate a test_command."""
        typed = text_of(node)
        if typed.startswith("(("):
            return self.arithmetic(node)
        if typed.startswith("[["):
            return self._guessed(lambda: _Expression(self, list(_tokens(node))).value())
        # A command whose words are split, which the grammar reads as bash's [[.
        source = "\n" * (line_of(node) - 1) + f"test {typed[1:-1]}"
        command = parse(source.encode(), self.state.script).children[0]
        return self.command(command) if command.type == "command" else None

    def command(self, node: Node) -> bool | None:
        """Evaluate a command `test …`; files are not checked."""
        return self._guessed(lambda: self._command(node))

    def _command(self, node: Node) -> bool | None:
        words: list[str] = []
        for child in node.children[1:]:
            for word in self.expander.words(child):
                if has_output(word):
                    return None
                self._assume(word, child)
                if emptied(word) or has_quotes(child):  # An empty word without quotes is none.
                    words.append(emptied(word))
        try:
            return _Test(words, self).value()
        except _WrongTest:
            return False

    def unary(self, operator: str, operand: Node) -> bool | None:
        """Evaluate `-z $A` in `[[ … ]]`."""
        if operator == "-v":
            name = self.text(operand)
            return None if name is None else self.expander.value(name) is not None
        text = self.text(operand)
        if operator in ("-z", "-n") and text is not None:
            return (text == "") == (operator == "-z")
        return self.file(operator, text)

    def binary(self, left: Node, operator: str, right: Node, rest: Sequence[Node] = ()) -> bool | None:
        """Evaluate `$A == b*` in `[[ … ]]`.

        Args:
            rest: parts of the right side that follow the first one without a blank.
        """
        if operator in _EQUALS or operator == "=~":
            return self._matches(left, operator, right, "".join(text_of(part) for part in (right, *rest)))
        return (self._compared if operator in _NUMBERS else self._ordered)(left, operator, right)

    def _matches(self, left: Node, operator: str, right: Node, typed: str) -> bool | None:
        text, is_glob = self.text(left), operator != "=~"
        pattern = self.expander.pattern(typed) if is_glob else self.expander.pattern(typed, re.escape)
        if text is None or has_output(pattern):
            return None
        self._assume(pattern, right)
        if not is_glob:
            return self._searched(text, emptied(pattern))
        # In [[ ]] extended patterns hold without `shopt -s extglob`, too.
        return patterns.matches(text, emptied(pattern), extended=True) == (operator != "!=")

    def _compared(self, left: Node, operator: str, right: Node) -> bool | None:
        texts = [self.text(side) for side in (left, right)]
        try:
            # An empty word is 0.
            numbers = [evaluate(text, self.expander.look_up) for text in texts if text is not None]
        except NotArithmetic:
            return None
        return bool(_NUMBERS[operator](*numbers)) if len(numbers) == len(texts) else None

    def _ordered(self, left: Node, operator: str, right: Node) -> bool | None:
        first, second = self.text(left), self.text(right)
        if first is None or second is None:
            return None
        return bool(_ORDERS[operator](first, second)) if operator in _ORDERS else self.file(operator)

    def _searched(self, text: str, pattern: str) -> bool | None:
        """Evaluate `[[ text =~ pattern ]]`; groups are stored in BASH_REMATCH."""
        # Repeated groups can take exponential time, and comparing names does not need them.
        if len(pattern) > 200 or len(text) > 2000 or re.search(r"\)[+*{]", pattern):
            return None
        pattern = with_classes(pattern)
        try:
            found = re.search(pattern, text)
        except re.error:
            return None
        if found is not None:
            self.state.set("BASH_REMATCH", [found.group(), *(each or "" for each in found.groups())])
        return found is not None

    def text(self, node: Node) -> str | None:
        """Return an operand's text; unset variables are empty and recorded as assumed; None for unknown output."""
        text = self.expander.text(node)
        if has_output(text):
            return None
        self._assume(text, node)
        return emptied(text)

    def _assume(self, text: str, node: Node) -> None:
        for name in names(text):
            if name in ALWAYS_SET and "/" in emptied(text):
                continue  # a path
            self.state.assumed.setdefault(name, f"{self.state.script}:{line_of(node)}")

    def _assumed_at(self, node: Node) -> Callable[[str], str]:
        """Return a text of an arithmetic expression with its unset variables as empty ones."""

        def assumed(name: str) -> str:
            if name.isidentifier() and self.expander.value(name) is None:
                self._assume(placeholder(f"${name}"), node)
            return self.expander.look_up(name)

        return assumed


class _Expression:
    """Evaluates the tokens of `[[ … ]]`: `||` binds least, then `&&`, then `!`, which the grammar binds otherwise."""

    def __init__(self, conditions: Conditions, tokens: list[str | Node]) -> None:
        self.conditions, self.tokens = conditions, tokens

    def value(self) -> bool | None:
        return self._either(True)

    def _taken(self, *signs: str) -> bool:
        if self.tokens and self.tokens[0] in signs:
            self.tokens.pop(0)
            return True
        return False

    def _either(self, live: bool) -> bool | None:
        """Evaluate as bash does, which does not look at what is decided already: then `live` is false."""
        value = self._both(live)
        while self._taken("||"):
            other = self._both(live and value is not True)
            value = _either(value, other)
        return value

    def _both(self, live: bool) -> bool | None:
        value = self._one(live)
        while self._taken("&&"):
            other = self._one(live and value is not False)
            value = _both(value, other)
        return value

    def _one(self, live: bool) -> bool | None:
        if self._taken("!"):
            return _negated(self._one(live))
        if self._taken("("):
            value = self._either(live)
            self._taken(")")
            return value
        if not self.tokens:
            return None
        first = self.tokens.pop(0)
        if isinstance(first, str):
            return self.conditions.unary(first, operand) if (operand := self._operand()) is not None and live else None
        if not (self.tokens and isinstance(self.tokens[0], str) and self.tokens[0] not in ("&&", "||", ")")):
            text = self.conditions.text(first) if live else None
            return None if text is None else text != ""
        operator = str(self.tokens.pop(0))
        second = self._operand()
        rest: list[Node] = []
        while second is not None and self._continues([second, *rest][-1]):
            rest.append(self.tokens.pop(0))
        return self.conditions.binary(first, operator, second, rest) if second is not None and live else None

    def _continues(self, part: Node) -> bool:
        """Return whether the next operand is a part of the same word, which the grammar divides: `*"$A"*`."""
        after = self.tokens[0] if self.tokens else ""
        return not isinstance(after, str) and bool(after.start_byte == part.end_byte)

    def _operand(self) -> Node | None:
        found = self.tokens.pop(0) if self.tokens else None
        return None if isinstance(found, str) else found


class _WrongTest(ValueError):
    """`test` ends with an error, and so with a status that is no success."""


class _Test:
    """Evaluates `test WORDS` as bash does: by their number up to four, by precedence beyond."""

    def __init__(self, words: list[str], conditions: Conditions) -> None:
        self.words, self.conditions = words, conditions

    def value(self) -> bool | None:
        words = self.words
        if len(words) > 4 or (len(words) == 4 and words[0] != "!" and (words[0], words[3]) != ("(", ")")):
            value = self._either()
            if self.words:
                raise _WrongTest
            return value
        return self._few(words)

    def _few(self, words: list[str]) -> bool | None:
        if len(words) < 2:
            return words not in ([], [""])
        if len(words) == 3 and self._is_binary(words[1], "-a", "-o"):
            return self._binary(*words)
        if words[0] == "!":
            return _negated(self._few(words[1:]))
        if len(words) > 2 and (words[0], words[-1]) == ("(", ")"):
            return self._few(words[1:-1])
        if len(words) > 2:
            raise _WrongTest
        return self._unary(*words)

    def _either(self) -> bool | None:
        value = self._both()
        while self.words[:1] == ["-o"]:
            self.words = self.words[1:]
            value = _either(value, self._both())
        return value

    def _both(self) -> bool | None:
        value = self._one()
        while self.words[:1] == ["-a"]:
            self.words = self.words[1:]
            value = _both(value, self._one())
        return value

    def _one(self) -> bool | None:
        words = self.words
        if not words:
            raise _WrongTest
        if words[0] == "!":
            self.words = words[1:]
            return _negated(self._one())
        if words[0] == "(":
            self.words = words[1:]
            value = self._either()
            if self.words[:1] != [")"]:
                raise _WrongTest
            self.words = self.words[1:]
            return value
        if len(words) > 2 and self._is_binary(words[1]):
            self.words = words[3:]
            return self._binary(*words[:3])
        if len(words) > 1 and (words[0] in ("-z", "-n") or words[0] in _LETTERS):
            self.words = words[2:]
            return self._unary(*words[:2])
        self.words = words[1:]
        return words[0] != ""

    def _is_binary(self, operator: str, *others: str) -> bool:
        return operator in (*_EQUALS, *_ORDERS, *_NUMBERS, "-ef", "-nt", "-ot", *others)

    def _unary(self, operator: str, operand: str) -> bool | None:
        if operator in ("-z", "-n"):
            return (operand == "") == (operator == "-z")
        if operator == "-v":
            return self.conditions.expander.value(operand) is not None
        if operator not in _LETTERS:
            raise _WrongTest
        return self.conditions.file(operator, operand)

    def _binary(self, left: str, operator: str, right: str) -> bool | None:
        if operator in _EQUALS:
            return (left == right) == (operator != "!=")
        if operator in _ORDERS:
            return bool(_ORDERS[operator](left, right))
        if operator in ("-a", "-o"):
            return (_both if operator == "-a" else _either)(left != "", right != "")
        if operator not in _NUMBERS:
            return self.conditions.file(operator)
        if not (_INTEGER.fullmatch(left) and _INTEGER.fullmatch(right)):
            raise _WrongTest
        return bool(_NUMBERS[operator](int(left), int(right)))


def _tokens(node: Node) -> Iterator[str | Node]:
    """Yield operators and parentheses as text, and operands, in the order in which they were typed."""
    for child in node.children:
        is_number = child.type == "unary_expression" and child.children[0].type == "-"
        if child.type in _EXPRESSIONS and not is_number:
            yield from _tokens(child)
        elif child.type not in _PUNCTUATION:
            yield child if child.is_named and child.type != "test_operator" else text_of(child)


def _negated(value: bool | None) -> bool | None:
    return None if value is None else not value


def _both(left: bool | None, right: bool | None) -> bool | None:
    if left is False or right is False:
        return False
    return None if left is None or right is None else True


def _either(left: bool | None, right: bool | None) -> bool | None:
    if left is True or right is True:
        return True
    return None if left is None or right is None else False
