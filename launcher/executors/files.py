"""A plan's files on disk: nothing of the user's is overwritten, nothing half-written is left under its final name."""

import os
from pathlib import Path

from launcher.executors.failure import CannotStart
from launcher.plan import LaunchPlan, PlanFile


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


def write(plan: LaunchPlan) -> None:
    """Write the plan's files, each beside its place and then renamed.

    Raises:
        CannotStart: a file cannot be written.
    """
    for file in plan.files:
        _write(file)


def _write(file: PlanFile) -> None:
    path = Path(file.path)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(file.content, encoding="utf-8")
        beside.chmod(file.mode)
        beside.replace(path)
    except OSError as error:
        raise CannotStart(f"{path} cannot be written: {error.strerror or error}") from None
