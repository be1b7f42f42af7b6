"""Order of versions, for `since` and `until`: that of `packaging`, for names as upstream gives them."""

import re
from functools import cache

from packaging.version import InvalidVersion, Version

_PREFIX = re.compile(r"(core_)?[rv]?(?=\d)")
# Branches come after every number: an epoch outranks all versions without one.
_BRANCH = Version("1!0")
FORK = "+"
"""Between a version and the name of a fork of it that a user added: `0.16.1+ours`."""


def base_version(version: str) -> str:
    """Return the version that a fork is like; a version that is no fork, as it is."""
    return version.partition(FORK)[0]


@cache
def version_key(version: str) -> Version:
    """Return a sortable key.

    `core_v0.12.1`, `v4.6` and `r1.6` count as their number, another entry point (`2.1.0-pynative`) as its version,
    `3.5-dev` comes before 3.5, a branch (`master`) after everything, and a fork (`0.16.1+ours`) counts as its version.
    """
    name = _PREFIX.sub("", base_version(version), count=1)
    for text in (name, name.partition("-")[0]):
        try:
            return Version(text)
        except InvalidVersion:
            continue
    return _BRANCH


@cache
def in_range(version: str, since: str | None, until: str | None) -> bool:
    """Return whether `version` lies between two, both inclusive; `until="4.0"` includes 4.0.0, not 4.0.1."""
    key = version_key(version)
    return (since is None or key >= version_key(since)) and (until is None or key <= version_key(until))
