"""Syntax checks for ssh: destinations and options."""

import re
from collections.abc import Iterable

from launcher.syntax import is_host_name, is_ipv6_address

_USER = re.compile(r"\w[\w.+-]*")
# Option letters of ssh(1), OpenSSH 9; those with a colon take a value.
_LETTERS = "46AaCfGgKkMNnqsTtVvXxYyB:b:c:D:E:e:F:I:i:J:L:l:m:O:o:P:p:Q:R:S:W:w:"


def is_ssh_host(text: str) -> bool:
    """Return whether a text is an ssh destination: [USER@]HOST."""
    user, at, host = text.rpartition("@")
    is_user = _USER.fullmatch(user) is not None if at else True
    return is_user and (is_host_name(host) or is_ipv6_address(host.removeprefix("[").removesuffix("]")))


def ssh_options_problem(words: Iterable[str]) -> str:
    """Return why words are not all ssh options, since ssh would parse any other word as the host; "" if they are."""
    from getopt import GetoptError, getopt

    given = list(words)
    if "--" in given:
        return "'--' ends the options of ssh"
    try:
        _, rest = getopt(given, _LETTERS)
    except GetoptError as error:
        return str(error)
    return f"{rest[0]!r} is not an option of ssh" if rest else ""
