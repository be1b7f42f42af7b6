"""What the system of this machine says of processes that ended: `shell/evidence.sh`, as every node runs it."""

import subprocess
from collections.abc import Mapping

from launcher.executors.shell_bodies import shell_body

_SECONDS = 10


def begun(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return what `causes` compares with, before processes start."""
    return tuple(_bash("evidence_begin", environ).split())


def causes(start: tuple[str, ...], environ: Mapping[str, str]) -> list[str]:
    """Return what the system says of processes that have ended since: one line each."""
    return _bash("evidence_end", environ, *start).splitlines() if len(start) > 1 else []


def _bash(function: str, environ: Mapping[str, str], *words: str) -> str:
    script = f'{shell_body("evidence")}\n{function} "$@"'
    try:
        done = subprocess.run(
            ["bash", "-c", script, "bash", *words],
            capture_output=True, text=True, errors="replace", timeout=_SECONDS, check=False, env=dict(environ),
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout
