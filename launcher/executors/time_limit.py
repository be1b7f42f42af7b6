"""Time limits of jobs, in the format of sbatch."""

import re

_TIME = re.compile(r"(?:(?P<days>\d+)-)?(?P<a>\d+)(?::(?P<b>\d+))?(?::(?P<c>\d+))?")


def seconds_of(text: str) -> int | None:
    """Return the seconds of a time in sbatch's format: minutes, M:S, H:M:S, D-H, D-H:M, D-H:M:S."""
    found = _TIME.fullmatch(text.strip())
    if found is None:
        return None
    a, b, c = (None if found[name] is None else int(found[name]) for name in ("a", "b", "c"))
    if found["days"] is not None:
        return int(found["days"]) * 86400 + (a or 0) * 3600 + (b or 0) * 60 + (c or 0)
    if c is not None:
        return (a or 0) * 3600 + (b or 0) * 60 + c
    return (a or 0) * 60 + (b or 0)
