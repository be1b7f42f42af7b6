"""Replaces secrets by `…` in messages and records."""

from collections.abc import Iterable, Mapping
from typing import Any

from launcher.job.schema import fields
from launcher.job.secret.find import HIDDEN, Secret, compiled, find, is_reference, is_value
from launcher.job.secret.names import is_secret, sign_of

_OVERRIDE = r"(?s)([~+]*(?:backend|imported)\.(?:env|args)\.([^=]+)=)(.+)"
# Mappings, also inside a list or after other values, but not a reference to a variable.
_MAPPING = r"(?s)([~+]*(?:backend|imported)(?:\.(?:env|args))?=).*(?<!\$)\{.*"
_KEYS = r"([\w.-]+)['\"]?\s*:"
# A word that is no override of a known kind, and the last name before its value.
_LOOSE = r"(?s)([~+]*(?:[^=]*[^\w=])?(\w+)\s*=)(.+)"
_FLAG = r"--?[A-Za-z][\w.-]*"
# Values hidden because of their names: a library's message may repeat them without the name.
_seen: dict[str, None] = {}
_MOST = 256
_SHORTEST = 8


def redacted(text: str, name: str = "") -> str:
    """Return a text with `…` in place of every secret, including those hidden before in other texts.

    Args:
        name: name of the value in `text`; "": none.
    """
    shown = _without(text, find(text, name, code=True))
    for value in _seen:
        if value in shown:
            shown = shown.replace(value, HIDDEN)
    return shown


def redacted_tree(node: Any, name: str = "") -> Any:
    """Return plain data with `…` in place of every secret in its texts; keys are the names of their values."""
    if isinstance(node, str):
        return redacted(node, name)
    if isinstance(node, Mapping):
        return {redacted(str(key)): redacted_tree(value, str(key)) for key, value in node.items()}
    if isinstance(node, (list, tuple)):
        return type(node)(redacted_tree(each, name) for each in node)
    return node


def without_secrets(words: Iterable[str]) -> list[str]:
    """Return the words of a command line with the values of secrets hidden, and mappings that may hold one."""
    shown: list[str] = []
    flag = ""
    for word in words:
        shown.append(_word(word, flag))
        flag = word.lstrip("-") if word[:1] == "-" and compiled(_FLAG).fullmatch(word) else ""
    return shown


def remember(value: str) -> None:
    """Hide a value from now on wherever `redacted` shows text, unless it may be a common word."""
    stripped = value.strip().strip("\"'")
    if len(stripped) >= _SHORTEST and not stripped.isalpha() and not stripped.isdigit() and len(_seen) < _MOST:
        _seen[stripped] = None


def _word(word: str, flag: str) -> str:
    if flag and is_secret(flag) and is_value(word, flag):
        remember(word)
        return HIDDEN
    key, sign, text = word.partition("=")
    if sign and key.lstrip("+") in fields():
        return f"{key}={redacted(text)}"
    mapping = compiled(_MAPPING).fullmatch(word)
    if mapping is not None:
        _remember_all(word)
        return f"{mapping[1]}{HIDDEN}"
    found = compiled(_OVERRIDE).fullmatch(word)
    if found is not None:
        head, name, value = found[1], found[2], found[3]
        keys = compiled(_KEYS).findall(value) if "{" in value else ()
        if any(map(is_secret, keys)) or (is_secret(name) and not is_reference(value)):
            remember(value)
            _remember_all(word)
            return f"{head}{HIDDEN}"
        secrets = find(value, name, code=True)
        if not secrets:
            return word
        for each in secrets:
            remember(value[each.start : each.end])
        return head + (HIDDEN if sign_of(name) != "no" else _without(value, secrets))
    loose = compiled(_LOOSE).fullmatch(word)
    if loose is not None and is_secret(loose[2]):
        if is_reference(loose[3]):
            return word
        remember(loose[3])
        return f"{loose[1]}{HIDDEN}"
    return redacted(word)


def _remember_all(text: str) -> None:
    for each in find(text, code=True):
        remember(text[each.start : each.end])


def _without(text: str, secrets: tuple[Secret, ...]) -> str:
    for each in reversed(secrets):
        text = f"{text[: each.start]}{HIDDEN}{text[each.end :]}"
    return text
