"""Syntax checks for text that is written to a script, a batch script's header or a command line.

No library is used: each check is one regular expression of a grammar that none covers (bash's assignments, sbatch's
header, ssh's destinations; those two stand with their executors); `shlex` quotes for bash only.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

# The line with which Hydra merges a file's keys at the root of the job; every recipe has it.
PACKAGE = "# @package _global_"
# IEEE Std 1003.1-2017, 3.235 Name: what `export` takes. Functions exported by bash (BASH_FUNC_x%%) have none.
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
# Variables that bash 5.2 sets itself: exporting one fails, yields another value, or (for integers) evaluates the value
# as arithmetic, which runs the command in `a[$(command)]`. bash(1), Shell Variables; each one tested.
BASH_VARIABLES = frozenset(
    (
        *("_", "BASHOPTS", "BASHPID", "BASH_ALIASES", "BASH_ARGC", "BASH_ARGV", "BASH_CMDS", "BASH_COMMAND"),
        *("BASH_LINENO", "BASH_SOURCE", "BASH_SUBSHELL", "BASH_VERSINFO", "DIRSTACK", "EPOCHREALTIME", "EPOCHSECONDS"),
        *("EUID", "FUNCNAME", "GROUPS", "HISTCMD", "LINENO", "OPTIND", "PIPESTATUS", "PPID", "RANDOM", "SECONDS"),
        *("SHELLOPTS", "SHLVL", "SRANDOM", "UID"),
    )
)
_HOST = re.compile(r"\w(?:[\w.-]*\w)?\.?")
_COLONS = re.compile(r"[0-9A-Fa-f:.]+(?:%[\w.-]+)?")
_REFERENCE = re.compile(r"\$(?:[A-Za-z_]\w*|\{[A-Za-z_]\w*\})", re.ASCII)
# 64 bits hold all numbers of fewer digits.
_MOST_DIGITS = 19


def is_variable(name: str) -> bool:
    """Return whether a job may set an environment variable of this name."""
    return _VARIABLE.fullmatch(name) is not None and name not in BASH_VARIABLES


def is_host(text: str) -> bool:
    """Return whether a text is a host name or address, or a variable that holds one; never an option."""
    return is_host_name(text) or _REFERENCE.fullmatch(text) is not None or is_ipv6_address(text)


def is_host_name(text: str) -> bool:
    """Return whether a text is a host name or an IPv4 address."""
    return _HOST.fullmatch(text) is not None


def is_ipv6_address(text: str) -> bool:
    """Return whether a text is an IPv6 address, which has colons."""
    from ipaddress import IPv6Address

    if not _COLONS.fullmatch(text):
        return False
    try:
        IPv6Address(text)
    except ValueError:
        return False
    return True


def is_text(text: str) -> bool:
    """Return whether a text can be encoded as UTF-8 and passed to a program: no NUL, no lone surrogate."""
    return text.isprintable() or ("\0" not in text and not any("\ud800" <= char <= "\udfff" for char in text))


def texts_of(value: Any) -> Iterable[str]:
    """Yield every string inside a value, including mapping keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield str(key)
            yield from texts_of(item)
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from texts_of(item)


def is_count(text: str) -> bool:
    """Return whether a text is a whole number that fits into 64 bits: `isdigit` also takes ² and a million digits."""
    return text.isascii() and text.isdigit() and len(text) < _MOST_DIGITS


def escaped(text: str) -> str:
    """Return a text on one line, with unprintable characters and line breaks escaped as in Python."""
    return text if text.isprintable() else "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def shown(text: str, longest: int = 60) -> str:
    """Return a text for a message, on one line and truncated."""
    return ascii(text if len(text) <= longest else f"{text[:longest]}...")


# A path may have 4,096 bytes, of which few use more than these; a message has fewer characters than a screen.
_LONG_WORD, _KEPT = re.compile(r"[^\s='\")]{241,}"), 80
LONGEST_MESSAGE = 2000


def shortened(text: str) -> str:
    """Return a message with the beginning of each very long value, and its length."""
    text = _LONG_WORD.sub(lambda found: f"{found[0][:_KEPT]}… ({len(found[0]):,} characters)", text)
    return text if len(text) <= LONGEST_MESSAGE else f"{text[: LONGEST_MESSAGE // 4]}… ({len(text):,} characters)"
