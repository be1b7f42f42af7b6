"""One output folder for all nodes of a job that a platform starts at once."""

import json
import time
from pathlib import Path

from launcher.executors.environment.nodes import Here
from launcher.executors.failure import CannotStart
from launcher.executors.files import Written, check_free, made_here, write_as_is
from launcher.executors.record import RUN, Record
from launcher.plan import PlanFile

_MARK = "platform.json"
# A node that creates the folder writes its mark at once; a shared disk may show it late.
_LATE_SECONDS = 5.0


def check_ours(folder: Path, place: Here) -> None:
    """Reject a folder that is not empty, unless another node of this job has just created it.

    Raises:
        CannotStart: it belongs to another job or run.
    """
    if _mark_in_time(folder) == place.identity:
        return
    try:
        check_free(folder)
    except CannotStart:
        # Between the two checks another node may have created it, or be doing so.
        if _mark_in_time(folder) != place.identity:
            raise


def join(folder: Path, place: Here) -> Written:
    """Mark a folder for all nodes of this job, unless one of them has, and return what was written.

    Raises:
        CannotStart: another job was faster, or nothing can be written.
    """
    written = Written()
    try:
        written.folder(folder)
        first = made_here(folder / RUN)
    except OSError as error:
        raise CannotStart(f"output_dir {folder} cannot be written: {error.strerror or error}") from None
    if first:
        written.made(folder / RUN)
        write_as_is([PlanFile(path=str(folder / RUN / _MARK), content=json.dumps(place.identity) + "\n")], written)
        return written
    if _mark_in_time(folder) != place.identity:
        raise CannotStart(f"output_dir {folder} is being used by another job: choose another output_dir=…")
    return written


def continues(before: Record | None, place: Here) -> bool:
    """Return whether a platform has started this same job before."""
    if before is None or before.executor != "environment":
        return False
    return {name: before.handle.get(name, "") for name in place.identity} == place.identity


def _mark_in_time(folder: Path) -> object:
    """Return a folder's mark; wait for it while the folder looks as if its creator is about to write it."""
    deadline = time.monotonic() + _LATE_SECONDS
    while (mark := _mark_of(folder)) is None and _is_being_made(folder) and time.monotonic() < deadline:
        time.sleep(0.1)
    # Later files are written after the mark.
    return _mark_of(folder) if mark is None else mark


def _mark_of(folder: Path) -> object:
    try:
        return json.loads((folder / RUN / _MARK).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _is_being_made(folder: Path) -> bool:
    """Return whether a folder holds only the `run` folder, which is created first."""
    try:
        return [path.name for path in folder.iterdir()] == [RUN]
    except OSError:
        return False
