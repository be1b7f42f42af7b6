"""`sed`: substitutions, and lines that are deleted, printed or put in, in their simple forms."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from launcher.importing.shell.placeholders import is_open, unknown_parts
from launcher.importing.shell.posix import searching

_LONGEST_TEXT = 200_000
_COMMAND = re.compile(
    r"[\s;]*(?:(?P<first>\d+|\$|/(?:[^/\\\n]|\\.)+/)(?:,(?P<last>\d+|\$))?)?(?P<other>!?)\s*(?P<letter>[sdpaic])",
    re.DOTALL,
)
_SUBSTITUTION = re.compile(
    r"(?P<sign>[/|#,:@!%_~+])(.*?)(?<!\\)(?P=sign)(.*?)(?<!\\)(?P=sign)([gI]*)(?=\s*(?:[;\n]|$))", re.DOTALL
)
# Unknown parts hold no blanks that separate words.
_BLANKS = re.compile(r"(?:\\[st]|\[\\s\]|[ *+])*")
_TEXT = re.compile(r"\\?[ \t]*\n?([^\n]*)")


@dataclass(slots=True)
class Sed:
    """The words of a `sed`."""

    scripts: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    extended: bool = False
    quiet: bool = False
    in_place: bool = False


@dataclass(frozen=True, slots=True)
class _Edit:
    """One command of a script of `sed`."""

    first: str
    last: str
    other: bool
    letter: str
    text: str = ""
    pattern: "re.Pattern[str] | None" = None
    everywhere: bool = False


def words_of(arguments: Sequence[str]) -> Sed | None:
    """Return the arguments of a `sed` by their meaning; None if one is not known."""
    found, rest = Sed(), list(arguments)
    while rest:
        word = rest.pop(0)
        if word in ("-e", "--expression") and rest:
            found.scripts.append(rest.pop(0))
        elif word.startswith("--expression="):
            found.scripts.append(word.partition("=")[2])
        elif word.startswith("--in-place"):
            found.in_place = True
        elif word.startswith("-") and len(word) > 1 and not word.startswith("--"):
            letters, is_in_place, _ = word[1:].partition("i")
            if set(letters) - set("Ern"):
                return None
            found.in_place |= bool(is_in_place)
            found.extended |= bool(set(letters) & set("Er"))
            found.quiet |= "n" in letters
        elif word.startswith("--"):
            return None
        else:
            found.files.append(word)
    if not found.scripts and found.files:
        found.scripts.append(found.files.pop(0))
    return found


def edited(text: str, sed: Sed) -> str | None:
    """Return a text as `sed` prints it; None if that is not known."""
    edits = [edit for script in sed.scripts for edit in _edits(script, sed)]
    if not text.endswith("\n") and any(edit is not None and edit.letter == "a" for edit in edits):
        return None
    if None in edits or len(text) > _LONGEST_TEXT or not all(map(_is_readable, sed.scripts)):
        return None
    lines, output = text.removesuffix("\n").split("\n") if text else [], ""
    for number, line in enumerate(lines, 1):
        end = "\n" if number < len(lines) or text.endswith("\n") else ""
        try:
            changed = _line(line, number, number == len(lines), [edit for edit in edits if edit is not None], sed)
        except (re.error, IndexError, ValueError):
            return None
        output += "".join(each + "\n" for each in changed)[: None if end or not changed else -1]
    return output


def _edits(script: str, sed: Sed) -> Iterator[_Edit | None]:
    """Yield the commands of a script; None for one that is not known."""
    at = 0
    while script[at:].strip(" \t\n;"):
        found = _COMMAND.match(script, at)
        if found is None:
            yield None
            return
        at, letter = found.end(), found.group("letter")
        address = found.group("first") or "", found.group("last") or "", bool(found.group("other"))
        if letter == "s":
            parts = _SUBSTITUTION.match(script, at)
            pattern = None if parts is None else searching(_unsigned(parts, 2), extended=sed.extended)
            pattern = None if parts is not None and is_open(parts.group(2)) else pattern
            # GNU's \U, \L … change case.
            if parts is None or pattern is None or re.search(r"\\[A-Za-mo-su-z]", parts.group(3)):
                yield None
                return
            pattern = re.compile(pattern.pattern, re.IGNORECASE) if "I" in parts.group(4) else pattern
            new = re.sub(r"\\(\D)|&", _in_replacement, _unsigned(parts, 3))
            yield _Edit(*address, letter, new, pattern, "g" in parts.group(4))
            at = parts.end()
        elif letter in "aic":
            text = _TEXT.match(script, at)
            assert text is not None
            yield _Edit(*address, letter, text.group(1))
            at = text.end()
        else:
            yield _Edit(*address, letter)
            if script[at : at + 1] not in ("", ";", "\n", " ", "}"):
                yield None
                return


def _is_readable(script: str) -> bool:
    """Return whether unknown parts of a script of `sed` are variables, which are taken to hold no signs of it."""
    return all(re.fullmatch(r"\$\{?\w+\}?", typed) for typed in unknown_parts(script))


def _unsigned(parts: "re.Match[str]", group: int) -> str:
    """Return the pattern or the text of a substitution, without the backslashes before its sign."""
    sign = parts.group("sign")
    return parts.group(group).replace(f"\\{sign}", sign if sign not in "|+" or group == 3 else f"[{sign}]")


def _in_replacement(found: "re.Match[str]") -> str:
    return {None: r"\g<0>", "n": "\n", "t": "\t", "\\": r"\\"}.get(found.group(1), found.group(1))


def _line(line: str, number: int, is_last: bool, edits: list[_Edit], sed: Sed) -> list[str]:
    """Return the lines that become of one.

    Raises:
        ValueError: this depends on an unknown part of it.
    """
    before: list[str] = []
    after: list[str] = []
    for edit in edits:
        if edit.first and _is_addressed(edit, line, number, is_last, sed) == edit.other:
            continue
        if edit.letter == "d":
            return [*before, *after]
        if edit.letter == "c":
            return [*before, edit.text, *after]
        if edit.letter in "ai":
            (after if edit.letter == "a" else before).append(edit.text)
        elif edit.letter == "p":
            before.append(line)
        elif edit.pattern is not None and _may_match(edit.pattern, line):
            line = edit.pattern.sub(edit.text, line, count=0 if edit.everywhere else 1)
    return [*before, *([] if sed.quiet else [line]), *after]


def _is_addressed(edit: _Edit, line: str, number: int, is_last: bool, sed: Sed) -> bool:
    if edit.first.startswith("/"):
        pattern = searching(edit.first[1:-1].replace(r"\/", "/"), extended=sed.extended)
        if pattern is None or edit.last:
            raise ValueError("an address that is not known")
        return _may_match(pattern, line) and pattern.search(line) is not None
    if not edit.last:
        return is_last if edit.first == "$" else number == int(edit.first)
    return edit.first != "$" and int(edit.first) <= number and (edit.last == "$" or number <= int(edit.last))


def _may_match(pattern: "re.Pattern[str]", line: str) -> bool:
    """Return whether a pattern can match a line with an unknown part.

    Raises:
        ValueError: it may or may not.
    """
    if not is_open(line) or _BLANKS.fullmatch(pattern.pattern):
        return True
    known = re.split("[\ue000]", line)[0]
    key = re.match(r"\^?([\w. -]*\w:[\w -]*)(\.\*\$?$)?", pattern.pattern)
    start = re.match(r"\^([\w -]+)(?![*+?{])", pattern.pattern)
    if key is not None and key.group(2) and known.startswith(key.group(1)):
        return True  # all of the line is replaced
    if key is not None and key.group(1) not in line:
        return False  # a key of YAML, which the value of a variable does not hold
    if start is None or start.group(1)[: len(known)] == known[: len(start.group(1))]:
        raise ValueError("a part of the line is not known")
    return False
