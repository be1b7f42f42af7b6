"""Operators of `${NAME…}` on known text: defaults, prefixes and suffixes, replacement, substrings, case."""

import fnmatch
import re

from launcher.importing.shell.posix import CLASSES


def matches(text: str, pattern: str, *, extended: bool) -> bool:
    """Return whether a glob pattern matches the whole text; `extended`: with the groups of `shopt -s extglob`."""
    return _compiled(pattern, extended).match(text) is not None


_CLASS = re.compile(r"\[:(\w+):\]")
# `@(a|b*)` of `shopt -s extglob`; groups within groups stay literal.
_GROUP = re.compile(r"(?<!\\)([?*+@!])\(([^()]*)\)")


def _compiled(pattern: str, extended: bool) -> re.Pattern[str]:
    return re.compile(rf"(?s:{_expression(pattern, extended)})\Z")


def _expression(pattern: str, extended: bool) -> str:
    """Return a glob pattern as a regular expression, without anchors."""
    group = _GROUP.search(pattern) if extended else None
    if group is None:
        # fnmatch reads `[!x]` as bash does.
        return fnmatch.translate(_literal(pattern))[4:-3]  # without (?s: and )\Z
    before, rest = _expression(pattern[: group.start()], extended), _expression(pattern[group.end() :], extended)
    several = f"(?:{'|'.join(_expression(each, extended) for each in group[2].split('|'))})"
    if group[1] == "!":
        return rf"{before}(?!{several}{rest}\Z).*{rest}"
    return f"{before}{several}{'' if group[1] == '@' else group[1]}{rest}"


def _literal(pattern: str) -> str:
    """Return a pattern in fnmatch syntax: no backslash, and `!` for `^` in a set."""
    pattern = _CLASS.sub(lambda found: CLASSES.get(found[1], ""), re.sub(r"(?<!\\)\[\^", "[!", pattern))
    return re.sub(r"\\(.)", lambda found: f"[{found[1]}]" if found[1] in "*?[" else found[1], pattern, flags=re.DOTALL)


def trimmed(text: str, operator: str, pattern: str, *, extended: bool) -> str:
    """Return the text without the shortest (`#`, `%`) or longest (`##`, `%%`) matching prefix or suffix."""
    compiled = _compiled(pattern, extended)
    cuts = range(len(text) + 1)
    if operator in ("#", "##"):
        found = [cut for cut in cuts if compiled.match(text[:cut])]
        return text[(found[0] if operator == "#" else found[-1]) :] if found else text
    found = [cut for cut in cuts if compiled.match(text[cut:])]
    return text[: (found[-1] if operator == "%" else found[0])] if found else text


def replaced(text: str, operator: str, pattern: str, new: str, *, extended: bool) -> str:
    """Return the text with the first (`/`), every (`//`), a leading (`/#`) or trailing (`/%`) match replaced."""
    body = _expression(pattern, extended)
    if not body:
        return new + text if operator == "/#" else text + new if operator == "/%" else text
    if operator == "/#":
        return re.sub(f"(?s)^(?:{body})", lambda _: new, text, count=1)
    if operator == "/%":
        return re.sub(f"(?s)(?:{body})$", lambda _: new, text, count=1)
    return re.sub(f"(?s){body}", lambda _: new, text, count=0 if operator == "//" else 1)


def recased(text: str, operator: str) -> str:
    """Return the text in upper (`^^`, `^`) or lower case (`,,`, `,`); a single one: first letter only."""
    changed = text.upper() if operator[0] == "^" else text.lower()
    return changed if len(operator) == 2 else changed[:1] + text[1:]


def substring(text: str, offset: int, length: int | None) -> str:
    """Return a part of the text; negative numbers count from the end, as in bash."""
    start = max(0, len(text) + offset) if offset < 0 else offset
    if length is None:
        return text[start:]
    return text[start : len(text) + length] if length < 0 else text[start : start + length]


_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "f": "\f", "v": "\v", "0": "\0"}


def ansi(text: str) -> str:
    """Return the content of `$'…'`."""

    def one(match: re.Match[str]) -> str:
        code = match.group(1)
        if code[0] in "xuU" and len(code) > 1:
            return chr(min(int(code[1:], 16), 0x10FFFF))
        return _ESCAPES.get(code, code)

    return re.sub(r"\\(x[0-9a-fA-F]{1,2}|u[0-9a-fA-F]{1,4}|U[0-9a-fA-F]{1,6}|.)", one, text, flags=re.DOTALL)


def unescaped(text: str) -> str:
    """Return an unquoted word without its backslashes."""
    return re.sub(r"\\(\n|.)", lambda match: "" if match.group(1) == "\n" else match.group(1), text, flags=re.DOTALL)


def unescaped_in_quotes(text: str) -> str:
    """Return double-quoted text without its escaping backslashes."""
    return re.sub(r"\\([\n$`\"\\])", lambda match: "" if match.group(1) == "\n" else match.group(1), text)
