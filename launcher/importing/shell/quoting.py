"""Patterns of `case`, `[[ … == … ]]` and `${A#…}`: quoted parts stand for themselves, variables are expanded."""

import re
from collections.abc import Callable

from launcher.importing.shell.braces import closed

_SPECIAL = re.compile(r"[\\*?\[\]!@+()|^-]")
_EXPANDED = re.compile(r"\$(?=[\w{(@*#?!-])|`")
_NAME = re.compile(r"\$(?:\w+|.)")


def literal(text: str) -> str:
    """Return a text as a pattern that matches it alone."""
    return _SPECIAL.sub(r"\\\g<0>", text)


def pattern(typed: str, expand: Callable[[str], str], literal: Callable[[str], str] = literal) -> str:
    """Return a pattern without its quotes.

    Args:
        expand: returns the text that a string in double quotes, or an expansion such as `$A`, stands for.
        literal: returns a quoted text as a part of the pattern.
    """
    found, at = "", 0
    while at < len(typed):
        end = at + 1
        if typed[at] == "\\":
            end = at + 2
            found += typed[at:end]
        elif typed[at] == "'":
            end = typed.find("'", end) + 1 or len(typed)
            found += literal(typed[at + 1 : end - 1])
        elif typed[at] == '"' or typed.startswith(("$'", '$"'), at):
            end = _after_quote(typed, at + (typed[at] == "$"))
            found += literal(expand(typed[at:end]))
        elif _EXPANDED.match(typed, at):
            end = _after_expansion(typed, at)
            found += expand(typed[at:end])
        else:
            found += typed[at]
        at = end
    return found


def _after_expansion(typed: str, at: int) -> int:
    if typed[at] == "`" or typed[at + 1 : at + 2] in ("{", "("):
        return closed(typed, at)
    name = _NAME.match(typed, at)
    return at + 1 if name is None else name.end()


def _after_quote(typed: str, at: int) -> int:
    """Return the index after a quoted text that begins here."""
    quote, at = typed[at], at + 1
    while at < len(typed) and typed[at] != quote:
        if typed[at] == "\\":
            at += 2
        elif quote == '"' and _EXPANDED.match(typed, at):
            at = _after_expansion(typed, at)
        else:
            at += 1
    return at + 1
