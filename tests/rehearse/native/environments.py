"""Virtual environments from PyPI for tests that run a backend itself; made once, kept in a cache folder."""

import fcntl
import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

CACHE_VARIABLE = "LAUNCH_TEST_ENVIRONMENTS"
"""Where environments are kept; ~/.cache/launch-tests without it."""

CONSTRAINTS = Path(__file__).parents[3] / "constraints.txt"


def torch_pin() -> str:
    """Return the torch requirement of constraints.txt, such as ``torch==2.13.0``."""
    found = re.search(r"^torch==\S+", CONSTRAINTS.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert found, f"{CONSTRAINTS} pins no torch"
    return found.group()


def python_with(name: str, *steps: Sequence[str]) -> Path:
    """Return the interpreter of an environment in which every step was given to ``pip install``, in order.

    ``LAUNCH_TEST_PYTHON_<NAME>`` names an interpreter to use instead. Skips the test, with pip's last words, where
    the environment cannot be made (no network, no wheel). Safe to call from several test processes.
    """
    given = os.environ.get(f"LAUNCH_TEST_PYTHON_{name.upper()}")
    if given:
        return Path(given)
    cache = Path(os.environ.get(CACHE_VARIABLE, Path.home() / ".cache" / "launch-tests"))
    digest = hashlib.sha256(repr((sys.version_info[:2], steps)).encode()).hexdigest()[:12]
    folder = cache / f"{name}-{digest}"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"{name}-{digest}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            _make(folder, steps)
            (folder / "complete").touch()
    return folder / "bin" / "python"


def _make(folder: Path, steps: Sequence[Sequence[str]]) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True, capture_output=True)
    for step in steps:
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", *step]
        result = subprocess.run(pip, capture_output=True, text=True, timeout=1800, check=False)
        if result.returncode != 0:
            last = (result.stderr.strip().splitlines() or ["no message"])[-1]
            pytest.skip(f"the environment cannot be made: pip install {' '.join(step)}: {last}")
