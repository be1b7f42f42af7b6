"""Order of backend versions, for `since` and `until`."""

import re
from functools import cache


def version_key(version: str) -> tuple[int, ...]:
    """Return a sortable key: the numbers of the version; `3.5-dev` sorts before `3.5`, `master` after everything."""
    if not version[:1].isdigit():
        return (1_000_000,)
    numbers = tuple(int(part) for part in re.findall(r"\d+", version))
    # A development version comes before everything of its number: 3.5-dev < 3.5 < 3.5.0.
    return (*numbers[:-1], numbers[-1] - 1, 1_000_000) if "dev" in version else numbers


@cache
def in_range(version: str, since: str | None, until: str | None) -> bool:
    """Return whether `version` lies between two, both inclusive; `until="4.0"` includes 4.0 itself, not 4.0.1."""
    key = version_key(version)
    return (since is None or key >= version_key(since)) and (until is None or key <= version_key(until))
