"""Order of versions, for `since` and `until`: that of `packaging`, for names as upstream gives them."""

import re
from collections.abc import Iterable
from functools import cache
from itertools import zip_longest

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
            continue  # without its suffix, then, or a branch
    return _BRANCH


def is_numbered(version: str) -> bool:
    """Return whether a version has a number by which it is ordered: it is neither a branch nor a fork."""
    return FORK not in version and version_key(version) < _BRANCH


@cache
def in_range(version: str, since: str | None, until: str | None) -> bool:
    """Return whether `version` lies between two, both inclusive; `until="4.0"` includes 4.0.0, not 4.0.1."""
    key = version_key(version)
    return (since is None or key >= version_key(since)) and (until is None or key <= version_key(until))


def nearest_versions(wanted: str, known: Iterable[str]) -> list[str]:
    """Return versions, the numerically nearest to `wanted` first: of the same major and minor number, if there are.

    Of two that are as near the newer one comes first; names without a number are last, and all of them keep their
    order where `wanted` is no number.
    """
    given, target = list(known), version_key(wanted)
    if target.epoch:
        return given
    newest = sorted(given, key=version_key, reverse=True)
    return sorted(newest, key=lambda each: _distance(version_key(each), target))


def _distance(version: Version, target: Version) -> tuple[int, ...]:
    parts = zip_longest(version.release, target.release, fillvalue=0)
    return (abs(version.epoch - target.epoch), *(abs(one - other) for one, other in parts))
