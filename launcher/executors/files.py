"""A plan's files on disk: nothing of the user's is overwritten, nothing half-written is left under its final name."""

import os
from collections.abc import Mapping
from pathlib import Path

from launcher.executors.failure import CannotStart
from launcher.plan import LaunchPlan, PlanFile
from launcher.plan.shell import REFERENCE


def claim(folder: Path) -> None:
    """Create an empty output folder.

    Raises:
        CannotStart: the folder holds something, or cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise CannotStart(f"output_dir {folder} is not empty: nothing is overwritten; choose another output_dir=…")
        probe = folder / f".launch-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise CannotStart(f"output_dir {folder} cannot be written: {error.strerror or error}") from None


def write(plan: LaunchPlan, environ: Mapping[str, str]) -> None:
    """Write the plan's files with their references resolved, each beside its place and then renamed.

    Raises:
        CannotStart: a file cannot be written.
    """
    for file in plan.files:
        _write(file, resolved(file.content, environ))


def resolved(text: str, environ: Mapping[str, str]) -> str:
    """Return a text with `${NAME}` references replaced by the environment's values; unknown ones stay."""
    return REFERENCE.sub(lambda match: environ.get(match.group(1), match.group(0)), text)


def _write(file: PlanFile, content: str) -> None:
    path = Path(file.path)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(content, encoding="utf-8")
        beside.chmod(file.mode)
        beside.replace(path)
    except OSError as error:
        raise CannotStart(f"{path} cannot be written: {error.strerror or error}") from None
