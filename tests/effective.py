"""Whether two sets of native arguments leave the same values after validation."""

from collections.abc import Mapping

from launcher.job import Job, Value
from launcher.mapping.backend import get_backend
from launcher.mapping.equivalence import Difference
from launcher.mapping.native import NativeArg, NativeArgs
from launcher.rules.effective import differences
from launcher.rules.native import effective_of


def differing(
    job: Job, backend: str, version: str, before: Mapping[str, Value], after: Mapping[str, Value]
) -> list[Difference]:
    """Return the arguments of a job, written in either set, whose value differs after validation."""
    sets = [
        NativeArgs(
            backend=backend,
            version=version,
            args=tuple(NativeArg(flag=flag, value=value) for flag, value in one.items()),
        )
        for one in (before, after)
    ]
    return differences(*(effective_of(job, get_backend(backend), version, native, as_written=True) for native in sets))
