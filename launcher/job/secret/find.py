"""Finds secrets in a text: by the name of a value, by its pattern, by the command that takes it."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache

from launcher.job.schema import fields
from launcher.job.secret.names import is_secret, sign_of
from launcher.job.secret.patterns import COMMANDS, PATTERNS, SecretPattern
from launcher.records import dataclass

# Replacements of a secret: in text that is shown, and in stored values that cannot be references.
HIDDEN = "…"
REDACTED = "<redacted>"
# Shorter texts match none of the known patterns, nor an address with a password.
_SHORTEST = 8


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """Return a pattern, compiled on first use: most commands handle no secret."""
    return re.compile(pattern)


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """A secret in a text.

    Attributes:
        start, end: its position.
        title: description for messages.
        variable: environment variable that usually holds it.
    """

    start: int
    end: int
    title: str
    variable: str


def find(text: str, name: str = "", *, code: bool = False) -> tuple[Secret, ...]:
    """Return the secrets of a text, in order and without overlap.

    Args:
        name: name of the value in `text` (environment variable, argument, key); "": none.
        code: the text is bash or a command line, in which every word after `NAME=` is a value; in other text, which may
            be prose, only values that look random are.
    """
    if name and _is_secret_value(text, name):
        variable = variable_of(name)
        return (Secret(start=0, end=len(text), title=f"the value of {name}", variable=variable),)
    if len(text) < _SHORTEST and not (code and "=" in text):
        return ()
    found = [*_matched(text, PATTERNS), *_addresses(text, name)]
    if any(sign in text for sign in _ASSIGNING):
        found += _assigned(text, code)
    if code:
        found += _matched(text, COMMANDS)
    return _merged(found) if found else ()


def variable_of(name: str) -> str:
    """Return the environment variable for a secret, derived from its name: `model.hub-token` is HUB_TOKEN."""
    words = re.sub(r"[^A-Za-z0-9]+", "_", name.rpartition(".")[2]).strip("_").upper()
    return words if words[:1].isalpha() and words not in _RESERVED else f"LAUNCH_{words or 'SECRET'}"


# Set in every shell: never used for a secret.
_RESERVED = frozenset({"PWD", "OLDPWD", "PATH", "HOME", "USER", "SHELL", "LANG", "HOSTNAME", "LOGNAME", "TERM"})


def is_value(text: str, name: str) -> bool:
    """Return whether the value of a secret's name is a secret: no reference, blank, switch, number or path."""
    stripped = text.strip().strip("\"'")
    if (
        not stripped
        or stripped.lower() in _SWITCHES
        or HIDDEN in stripped
        or REDACTED in stripped
        or set(stripped) <= set("*x.X")
    ):
        return False
    if is_reference(stripped) or compiled(_VOCABULARY).fullmatch(stripped):
        return False
    last = name.rpartition(".")[2].lower()
    if last.endswith(("token", "key", "id")) and compiled(_NUMBER).fullmatch(stripped):
        return False
    return not (
        last.endswith(("key", "credentials", "credential", "cert"))
        and compiled(_PATH).match(stripped)
        and "." in stripped
    )


_SWITCHES = frozenset(
    {"true", "false", "null", "none", "yes", "no", "on", "off", "0", "1", "bearer", "basic", "digest"}
)
_VOCABULARY = r"<[^<>]*>|\[\w*\]|\{\{.*\}\}"
_NUMBER = r"-?\d{1,9}(\.\d+)?"
_PATH = r"(?:~|\.{1,2})?(?:/[\w.@+-]+)+/?$"
_REFERENCE = r"\\?\$\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}|\$\w+|\$\([^()]*(?:\([^()]*\)[^()]*)*\)|`[^`]*`"


def is_reference(text: str) -> bool:
    """Return whether a text consists only of shell variables, command substitutions and punctuation."""
    return ("$" in text or "`" in text) and not any(char.isalnum() for char in compiled(_REFERENCE).sub("", text))


def looks_random(text: str) -> bool:
    """Return whether a text looks randomly generated: long, of letters and digits, without words or a path."""
    if compiled(_UUID).fullmatch(text):
        return True
    if any(map(str.isspace, text)):
        return False
    run = max(compiled(_RUN).findall(text), key=len, default="")
    if len(run) < 16 or run.isdigit() or (run.isalpha() and (run.islower() or run.isupper() or run.istitle())):
        return False
    if compiled(_PATH).match(text) or ("/" in text and not compiled(_BASE64).fullmatch(text)):
        return False
    return entropy(run) >= 3.0


_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_RUN = r"[A-Za-z0-9]+"
_BASE64 = r"(?=[^/]*[A-Z0-9+])[A-Za-z0-9+/]{24,}={0,2}"


def entropy(text: str) -> float:
    """Return the bits per character that a text would need if its characters were independent."""
    return -sum(count / len(text) * math.log2(count / len(text)) for count in Counter(text).values())


def _is_secret_value(text: str, name: str) -> bool:
    sign = sign_of(name)
    if sign == "secret":
        return is_value(text, name)
    return sign == "maybe" and looks_random(text.strip("\"' "))


# -- by pattern


def _matched(text: str, patterns: Iterable[SecretPattern]) -> Iterator[Secret]:
    low = text.lower()
    for known in patterns:
        if not any(keyword in low for keyword in known.keywords):
            continue
        pattern = compiled(known.pattern)
        group = "secret" if "secret" in pattern.groupindex else 0
        for match in pattern.finditer(text):
            start, end = match.span(group)
            if start < end and not is_reference(match[group]):
                yield Secret(start=start, end=end, title=known.title, variable=known.variable)


# The password may hold `@`, or `/` (keys of S3). Digits and `/` after a colon are a port and a path; after the name
# of a bucket's store only four or five of them.
_ADDRESS = (
    r"(?<![A-Za-z0-9])(?:(?P<store>s3[an]?|oss|obs|cosn?|tos|bos|ks3|gs)|[A-Za-z][A-Za-z0-9+.\-]*)://[^\s/:@'\"]*:"
    r"(?P<secret>[^\s'\"/]+(?=@)|(?!(?(store)\d{4,5}|\d{1,5})/)[^\s'\"@]+(?=@))@"
)
_USER_ONLY = r"(?<![A-Za-z0-9])[A-Za-z][A-Za-z0-9+.\-]*://(?P<secret>[A-Za-z0-9_\-]{20,})@"
_NO_SCHEME = r"^[\w.+\-]+:(?P<secret>[^\s@/]{3,})@[\w.\-]+(?::\d+)?/?$"
_OF_ADDRESSES = ("proxy", "url", "uri", "dsn", "endpoint", "remote", "mirror", "server")


def _addresses(text: str, name: str) -> Iterator[Secret]:
    if "@" not in text:
        return
    variable = f"{variable_of(name)}_PASSWORD" if name else "URL_PASSWORD"
    if "://" in text:
        for pattern in (_ADDRESS, _USER_ONLY):
            for match in compiled(pattern).finditer(text):
                value = match["secret"]
                if is_value(value, "password") and (pattern is _ADDRESS or looks_random(value)):
                    yield Secret(
                        start=match.start("secret"), end=match.end("secret"), title=_PASSWORD, variable=variable
                    )
    elif name.lower().endswith(_OF_ADDRESSES):
        found = compiled(_NO_SCHEME).match(text)
        if found is not None and is_value(found["secret"], "password"):
            yield Secret(start=found.start("secret"), end=found.end("secret"), title=_PASSWORD, variable=variable)


_PASSWORD = "the password of an address"

# -- by name: NAME=VALUE, "name": value, --name value, ${NAME:-value}, setenv NAME value

_ASSIGNMENT = (
    r"(?<![\w.$])(?:\$\{)?-{0,2}(?P<name>[A-Za-z_][\w.\-]*+)['\"\])]*+\s{0,3}(?:[+:]?=(?!=)|:[-=]?(?!//))\s{0,3}"
    r"|(?<![\w\-])--?(?P<flag>[A-Za-z][\w.\-]*+)[ \t]+(?=[^\s\-])"
    r"|(?<![\w\-])(?:setenv|ENV|set\s+-\w+)\s+(?P<set>[\w\-]+)\s+"
)
_ASSIGNING = ("=", ":", "--", "setenv ", "ENV ", "set -")
# Adjoining pieces, quoted or not; a comma belongs to the value unless another NAME= follows it.
_VALUE = (
    r"(?:\"(?:\\.|[^\"\\])*\"|'[^']*'|\\.|[^\s\"'`;&|<>(){}\[\],\\]"
    r"|,(?!\s*['\"]?[A-Za-z_][\w.\-]*['\"]?\s*[=:]))+|['\"]\S+"
)


def _assigned(text: str, code: bool) -> Iterator[Secret]:
    position = 0
    assignment, value = compiled(_ASSIGNMENT), compiled(_VALUE)
    while (match := assignment.search(text, position)) is not None:
        position = match.end()
        name = match["name"] or match["flag"] or match["set"]
        sign = "no" if name in fields() else sign_of(name)
        if sign == "no" or (match["name"] is None and not code):
            continue
        found = value.match(text, position)
        if found is None:
            continue
        start, end = found.span()
        if (
            text[start] in "'\""
            and text[end - 1] == text[start]
            and end - start > 1
            and text[start] not in text[start + 1 : end - 1]
        ):
            start, end = start + 1, end - 1
        written = text[start:end]
        # "the token: what" is prose; `"token": what` and `token:what` are not.
        prose = match[0].endswith((": ", ":\t")) and match[0][len(name) :].startswith(":")
        strict = sign == "maybe" or not code or prose
        if is_value(written, name) and (not strict or looks_random(written) or _is_chosen_by_user(written, sign)):
            yield Secret(start=start, end=end, title=f"the value of {name}", variable=variable_of(name))
            position = end


def _is_chosen_by_user(text: str, sign: str) -> bool:
    """Return whether a text in prose looks like a chosen password: no word, has both letters and digits."""
    return sign == "secret" and len(text) >= 6 and any(map(str.isdigit, text)) and any(map(str.isalpha, text))


def _merged(found: list[Secret]) -> tuple[Secret, ...]:
    """Return secrets without overlap: those that overlap are merged into the first."""
    merged: list[Secret] = []
    for each in sorted(found, key=lambda secret: (secret.start, -secret.end)):
        if merged and each.start < merged[-1].end:
            last = merged[-1]
            if each.end > last.end:
                merged[-1] = Secret(start=last.start, end=each.end, title=last.title, variable=last.variable)
            continue
        merged.append(each)
    return tuple(merged)


__all__ = [
    "HIDDEN",
    "REDACTED",
    "Secret",
    "entropy",
    "find",
    "is_reference",
    "is_secret",
    "is_value",
    "looks_random",
    "variable_of",
]
