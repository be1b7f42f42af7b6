"""Versions of the Python distributions that an interpreter has: this one, or the one that runs a job."""

import json
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from launcher.catalogue.versions import in_range
from launcher.records import dataclass

_SECONDS = 60
_ASK = """import json, platform, sys
from importlib.metadata import PackageNotFoundError, version
found = {"python": platform.python_version()}
for name in sys.argv[1:]:
    try: found[name] = version(name)
    except PackageNotFoundError: pass
print(json.dumps(found))"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """Installed versions, by name.

    Attributes:
        problem: why the versions could not be read; "" if they were.
        other_python: the Python that was queried, if it is not this one.
    """

    versions: Mapping[str, str]
    problem: str = ""
    other_python: str = ""


def installed(names: Sequence[str], python: str | None) -> Installed:
    """Return the versions of distributions that a Python has; each other Python is queried once."""
    if python is None or python == sys.executable or "/" not in python:
        known = {"python": platform.python_version()}
        for name in names:
            try:
                known[name] = version(name)
            except PackageNotFoundError:
                continue  # without an entry it is not installed
        return Installed(versions=known)
    return _queried(tuple(names), python)


@cache
def _queried(names: tuple[str, ...], python: str) -> Installed:
    try:
        done = subprocess.run(
            [python, "-c", _ASK, *names], capture_output=True, text=True, timeout=_SECONDS, check=False
        )
        return Installed(versions=dict(json.loads(done.stdout)), other_python=python)
    except OSError as error:
        problem = f"cannot be run: {error.strerror}"
    except subprocess.TimeoutExpired:
        problem = f"did not answer in {_SECONDS} s"
    except (TypeError, ValueError):
        said = (done.stderr or done.stdout).strip().splitlines()
        problem = (
            f"is not a Python that can list its packages: it {f'printed {said[-1]!r}' if said else 'printed nothing'}"
        )
    return Installed(versions={}, problem=f"{python} {problem}")


def version_read(
    distribution: str, ranges: Sequence[tuple[str | None, str | None, str]], python: str | None
) -> tuple[str, str] | None:
    """Return the installed version of a backend's distribution, and the backend version whose arguments it reads.

    Args:
        ranges: first and last version of the distribution (None: open), and the backend version; the first fit counts.
        python: the interpreter that has it; None: this one.

    Returns:
        None: it is not installed, or no range has it.
    """
    found = installed([distribution], python).versions.get(distribution) if ranges else None
    if found is None:
        return None
    return next(((found, version) for since, until, version in ranges if in_range(found, since, until)), None)
