"""`$((…))`: bash's integer arithmetic on text; the caller looks up variables."""

import re
import string
from collections.abc import Callable

_TOKEN = re.compile(
    r"\s*(\d+#[\w@]+|0[xX][0-9a-fA-F]+|\d+|[A-Za-z_]\w*|\*\*|<<=|>>=|<<|>>|<=|>=|==|!=|&&|\|\||\+\+|--|[-+*/%&|^]=|.)"
)
# Precedence of binary operators, as in C.
_STRENGTH = {"||": 1, "&&": 2, "|": 3, "^": 4, "&": 5, "==": 6, "!=": 6, "<": 7, ">": 7, "<=": 7, ">=": 7, "<<": 8}
_STRENGTH |= {">>": 8, "+": 9, "-": 9, "*": 10, "/": 10, "%": 10, "**": 12}
_ASSIGNING = {"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="}
_DEEPEST = 20
_DIGITS = string.digits + string.ascii_lowercase + string.ascii_uppercase + "@_"
_ONE_CASE = 36  # up to this base, letters are the same in both cases


class NotArithmetic(ValueError):
    """The text is not an integer expression, or a part of it is unknown."""


def _truncated(left: int, right: int) -> int:
    if right == 0:
        raise NotArithmetic("division by zero")
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _power(base: int, exponent: int) -> int:
    if exponent < 0:
        raise NotArithmetic("an exponent below 0")
    return pow(base, exponent, 2**64)


_BINARY: dict[str, Callable[[int, int], int]] = {
    "||": lambda a, b: int(bool(a) or bool(b)),
    "&&": lambda a, b: int(bool(a) and bool(b)),
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
    "&": lambda a, b: a & b,
    "==": lambda a, b: int(a == b),
    "!=": lambda a, b: int(a != b),
    "<": lambda a, b: int(a < b),
    ">": lambda a, b: int(a > b),
    "<=": lambda a, b: int(a <= b),
    ">=": lambda a, b: int(a >= b),
    "<<": lambda a, b: a << (b & 63),
    ">>": lambda a, b: a >> (b & 63),
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": _truncated,
    "%": lambda a, b: a - b * _truncated(a, b),
    "**": _power,
}


def evaluate(
    text: str, look_up: Callable[[str], str], assign: Callable[[str, str], None] | None = None, depth: int = 0
) -> int:
    """Return the value of an expression; variables are looked up and evaluated recursively, assignments are made.

    Raises:
        NotArithmetic: it is not an integer expression, or a name in it has no known value.
    """
    if depth > _DEEPEST:
        raise NotArithmetic("names refer to each other")
    if not text.strip():
        return 0
    parser = _Parser(text, look_up, assign, depth)
    value = parser.comma()
    if parser.peek() is not None:
        raise NotArithmetic(f"unexpected {parser.peek()!r} in {text.strip()!r}")
    # 64 bits, as in bash
    return (value + 2**63) % 2**64 - 2**63


class _Parser:
    """A precedence-climbing parser that computes while it parses."""

    def __init__(
        self, text: str, look_up: Callable[[str], str], assign: Callable[[str, str], None] | None, depth: int
    ) -> None:
        self.tokens = [token for token in _TOKEN.findall(text.strip()) if token.strip()]
        self.at = 0
        self.look_up, self.assign, self.depth = look_up, assign, depth
        self.nesting = 0

    def peek(self, ahead: int = 0) -> str | None:
        return self.tokens[self.at + ahead] if self.at + ahead < len(self.tokens) else None

    def next(self) -> str:
        token = self.peek()
        if token is None:
            raise NotArithmetic("the expression ends too early")
        self.at += 1
        return token

    def comma(self) -> int:
        value = self.ternary()
        while self.peek() == ",":
            self.next()
            value = self.ternary()
        return value

    def ternary(self) -> int:
        name, operator = self.peek(), self.peek(1)
        if name is not None and (name[0].isalpha() or name[0] == "_") and operator in _ASSIGNING:
            return self._assignment(self.next())
        if operator == "[":
            at = self.at
            item = self._item(self.next())
            if self.peek() in _ASSIGNING:
                return self._assignment(item)
            self.at = at
        value = self.binary(1)
        if self.peek() == "?":
            self.next()
            yes = self.ternary()
            if self.next() != ":":
                raise NotArithmetic("`?` without `:`")
            no = self.ternary()
            return yes if value else no
        return value

    def _item(self, name: str) -> str:
        """Return the name of an array element, `A[1]`, with its index computed."""
        self.next()
        index = self.comma()
        if self.next() != "]":
            raise NotArithmetic("a bracket is not closed")
        return f"{name}[{index}]"

    def _assignment(self, name: str) -> int:
        operator = self.next()
        value = self.ternary()
        if operator != "=":
            value = _BINARY[operator[:-1]](self._value_of(name), value)
        self._set(name, value)
        return value

    def binary(self, weakest: int) -> int:
        left = self.unary()
        while True:
            operator = self.peek()
            if operator is None or _STRENGTH.get(operator, 0) < weakest:
                return left
            self.next()
            strength = _STRENGTH[operator]
            right = self.binary(strength if operator == "**" else strength + 1)
            left = _BINARY[operator](left, right)

    def unary(self) -> int:
        token = self.next()
        if token == "~" and self.peek() == "~" and self.peek(1) == "~":  # 10#, see `grammar`
            self.at += 2
            return self._in_base(10, self.next())
        if token in ("-", "+", "!", "~"):
            value = self.unary()
            return {"-": -value, "+": value, "!": int(not value), "~": ~value}[token]
        if token in ("++", "--"):
            name = self.next()
            return self._set(name, self._value_of(name) + (1 if token == "++" else -1))
        if token == "(":
            return self._group()
        if token[0].isdigit():
            return self._number(token)
        if token[0].isalpha() or token[0] == "_":
            token = self._item(token) if self.peek() == "[" else token
            value = self._value_of(token)
            if self.peek() in ("++", "--"):
                self._set(token, value + (1 if self.next() == "++" else -1))
            return value
        raise NotArithmetic(f"unexpected {token!r}")

    def _group(self) -> int:
        self.nesting += 1
        if self.nesting > 100:
            raise NotArithmetic("too many parentheses")
        value = self.comma()
        if self.next() != ")":
            raise NotArithmetic("a parenthesis is not closed")
        self.nesting -= 1
        return value

    def _number(self, token: str) -> int:
        if self.peek() == ".":
            raise NotArithmetic("bash arithmetic supports integers only")
        base, is_given, digits = token.partition("#")
        if is_given:
            return self._in_base(int(base), digits)
        try:
            return int(token, 16 if token[:2].lower() == "0x" else 8 if token[0] == "0" and len(token) > 1 else 10)
        except ValueError:
            raise NotArithmetic(f"{token} is not a number") from None

    def _in_base(self, base: int, digits: str) -> int:
        """Return a number such as `16#ff`; above base 36 capital letters follow small ones."""
        values = [_DIGITS.find(digit if base > _ONE_CASE else digit.lower()) for digit in digits]
        if not 2 <= base <= len(_DIGITS) or not all(0 <= value < base for value in values):
            raise NotArithmetic(f"{digits} is not a number of base {base}")
        number = 0
        for value in values:
            number = number * base + value
        return number

    def _value_of(self, name: str) -> int:
        return evaluate(self.look_up(name), self.look_up, None, self.depth + 1)

    def _set(self, name: str, value: int) -> int:
        if self.assign is not None:
            self.assign(name, str(value))
        return value
