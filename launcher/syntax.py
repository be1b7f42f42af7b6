"""Syntax checks for text that ends up in a script, a queue's header or a command line.

Own code: each check is one regular expression of a grammar that no library knows (bash's assignments, sbatch's header,
ssh's destinations); `shlex` quotes for bash alone.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

# IEEE Std 1003.1-2017, 3.235 Name: what `export` takes. Functions exported by bash (BASH_FUNC_x%%) are none.
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
# What bash 5.2 sets itself: an export of them fails, has another value, or (those that are numbers) evaluates the value
# as arithmetic, which runs what `a[$(command)]` names. bash(1), Shell Variables; tried one by one.
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
_USER = re.compile(r"\w[\w.+-]*")
_REFERENCE = re.compile(r"\$(?:[A-Za-z_]\w*|\{[A-Za-z_]\w*\})", re.ASCII)
# ssh(1), OpenSSH 9: its letters; those with a colon take a value.
_SSH_LETTERS = "46AaCfGgKkMNnqsTtVvXxYyB:b:c:D:E:e:F:I:i:J:L:l:m:O:o:P:p:Q:R:S:W:w:"
# getopt_long(3), as sbatch calls it.
_LONG_OPTION = re.compile(r"--[A-Za-z][A-Za-z0-9-]*(?:=.*)?", re.DOTALL | re.ASCII)
_SHORT_OPTION = re.compile(r"-[A-Za-z].*", re.DOTALL | re.ASCII)


def is_variable(name: str) -> bool:
    """Tell whether a job may set an environment variable of this name."""
    return _VARIABLE.fullmatch(name) is not None and name not in BASH_VARIABLES


def is_host(text: str) -> bool:
    """Tell whether a text is a host's name or address, or a variable that holds one; never an option."""
    return _HOST.fullmatch(text) is not None or _REFERENCE.fullmatch(text) is not None or _is_address(text)


def _is_address(text: str) -> bool:
    """Tell whether a text is an address of IPv6, which has colons; those of IPv4 look like names."""
    from ipaddress import IPv6Address

    if not _COLONS.fullmatch(text):
        return False
    try:
        IPv6Address(text)
    except ValueError:
        return False
    return True


def is_ssh_host(text: str) -> bool:
    """Tell whether a text is a destination of ssh: [USER@]HOST."""
    user, at, host = text.rpartition("@")
    is_user = _USER.fullmatch(user) is not None if at else True
    return is_user and (_HOST.fullmatch(host) is not None or _is_address(host.removeprefix("[").removesuffix("]")))


def ssh_options_problem(words: Iterable[str]) -> str:
    """Return why words are not options of ssh alone, for ssh would take another word for the host; "" if they are."""
    from getopt import GetoptError, getopt

    given = list(words)
    if "--" in given:
        return "'--' ends the options of ssh"
    try:
        _, rest = getopt(given, _SSH_LETTERS)
    except GetoptError as error:
        return str(error)
    return f"{rest[0]!r} is no option of ssh" if rest else ""


def sbatch_options_problem(words: Iterable[str]) -> str:
    """Return which word is no option of sbatch, nor the value of the one before it; "" if all are."""
    takes_value = False
    for word in words:
        if _LONG_OPTION.fullmatch(word):
            takes_value = "=" not in word
        elif _SHORT_OPTION.fullmatch(word):
            takes_value = len(word) == 2
        elif not takes_value or word.startswith("-"):
            return f"{word!r} is no option of sbatch: --NAME or --NAME=VALUE"
        else:
            takes_value = False
    return ""


def is_text(text: str) -> bool:
    """Tell whether a text can be written as UTF-8 and handed to a program: no NUL, no half of a surrogate pair."""
    return text.isprintable() or ("\0" not in text and not any("\ud800" <= char <= "\udfff" for char in text))


def texts_of(value: Any) -> Iterable[str]:
    """Yield every text inside a value, names in mappings included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield str(key)
            yield from texts_of(item)
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from texts_of(item)


def escaped(text: str) -> str:
    """Return a text on one line: what cannot be printed, line ends included, as Python writes it."""
    return text if text.isprintable() else "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def shown(text: str, longest: int = 60) -> str:
    """Return a text for a message, on one line and of a bearable length."""
    return ascii(text if len(text) <= longest else f"{text[:longest]}...")
