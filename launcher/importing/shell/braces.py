"""Brace expansion (`{a,b}`, `{1..8..2}`, `run_{a,b}.sh`) of a typed word, before all other expansions."""

import itertools
import re
from collections.abc import Iterator

from launcher.budgets import BUDGETS, BeyondBudget

_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)(?:\.\.(-?\d+))?|([A-Za-z])\.\.([A-Za-z])(?:\.\.(-?\d+))?")
_MOST_DIGITS = 18
_MOST = BUDGETS["words"].limit


def braced(word: str) -> list[str]:
    """Return the words that a typed word expands to: itself if it has no brace expansion."""
    found = _found(word)
    if found is None:
        return [word]
    start, end, choices = found
    rest = braced(word[end + 1 :])
    made = (word[:start] + inner + tail for choice in choices for inner in braced(choice) for tail in rest)
    return _limited(made)


def _limited(words: Iterator[str]) -> list[str]:
    found = list(itertools.islice(words, _MOST + 1))
    if len(found) > _MOST:
        raise BeyondBudget("words", "")
    return found


def _found(word: str) -> tuple[int, int, list[str]] | None:
    """Return the first brace expansion: its start, its end, and its alternatives."""
    for start, char in _plain(word):
        if char != "{" or word[start - 1 : start] == "$":
            continue
        depth, commas, end = 0, [], -1
        for at, sign in _plain(word):
            if at <= start:
                continue
            if sign == "{":
                depth += 1
            elif sign == "}" and depth:
                depth -= 1
            elif sign == "}":
                end = at
                break
            elif sign == "," and not depth:
                commas.append(at)
        if end < 0:
            continue
        inner = word[start + 1 : end]
        if commas:
            edges = [start, *commas, end]
            return start, end, [word[left + 1 : right] for left, right in itertools.pairwise(edges)]
        between = _RANGE.fullmatch(inner)
        if between is not None:
            return start, end, _between(between)
    return None


def _plain(word: str) -> Iterator[tuple[int, str]]:
    """Yield the literal characters of a word: no quotes, no `${…}`, no `$(…)`, nothing after a backslash."""
    at = 0
    while at < len(word):
        char = word[at]
        if char == "\\":
            at += 2
            continue
        if char in "'\"":
            end = at + 1
            while end < len(word) and word[end] != char:
                end += 2 if word[end] == "\\" and char == '"' else 1
            at = end + 1
            continue
        if char == "`" or word[at : at + 2] in ("${", "$("):
            at = closed(word, at)
            continue
        yield at, char
        at += 1


def closed(word: str, at: int) -> int:
    """Return the index after an expansion that begins here."""
    if word[at] == "`":
        end = word.find("`", at + 1)
        return len(word) if end < 0 else end + 1
    opening, closing, depth = word[at + 1], "}" if word[at + 1] == "{" else ")", 0
    for index in range(at + 1, len(word)):
        depth += (word[index] == opening) - (word[index] == closing)
        if depth == 0:
            return index + 1
    return len(word)


def _between(found: "re.Match[str]") -> list[str]:
    """Return the items of `{1..8..2}` and `{a..e}`; a leading zero keeps the width."""
    first, last, step, start, stop, letters = found.groups()
    if any(text is not None and len(text) > _MOST_DIGITS for text in (first, last, step, letters)):
        raise BeyondBudget("words", "")
    begin, end = (int(first), int(last)) if first is not None else (ord(start), ord(stop))
    by = abs(int(step or letters or 1)) or 1
    numbers = range(begin, end + 1, by) if end >= begin else range(begin, end - 1, -by)
    if first is None:
        return [chr(number) for number in numbers]
    if len(numbers) > _MOST:
        raise BeyondBudget("words", "", len(numbers))
    padded = any(re.match(r"-?0\d", text) for text in (first, last))
    width = max(len(first), len(last)) if padded else 0
    return [f"{number:0{width}d}" if width else str(number) for number in numbers]
