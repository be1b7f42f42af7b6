"""Writes a plan's files: nothing of the user's is overwritten, no partial file is left under its final name."""

import json
import os
import shlex
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from launcher.executors import private
from launcher.executors.failure import CannotStart
from launcher.outputs.free import free_path
from launcher.plan import LaunchPlan, PlanFile
from launcher.plan.shell import REFERENCE
from launcher.syntax import shown

# Subfolder that only the owning job creates in an output folder.
_OWN = "run"


class Written:
    """Files and folders written by one run, so that a failed start can remove them, and nothing else."""

    def __init__(self) -> None:
        self._files: list[Path] = []
        self._folders: list[Path] = []

    def folder(self, path: Path, mode: int = 0o777) -> None:
        """Create a folder and its missing parents."""
        if path.is_dir():
            return
        if path.parent != path:
            self.folder(path.parent)
        path.mkdir(mode=mode, exist_ok=True)
        self._folders.append(path)

    def made(self, folder: Path) -> None:
        """Record a folder that this run has just created."""
        self._folders.append(folder)

    def file(self, path: Path) -> None:
        """Record a file that is about to be written, unless it exists already and so does not belong to this run."""
        if not path.exists():
            self._files.append(path)

    def undo(self) -> None:
        """Remove the files, and the folders that are then empty."""
        for file in reversed(self._files):
            _try(file.unlink)
        for folder in reversed(self._folders):
            _try(folder.rmdir)

    def remains(self, folder: Path) -> bool:
        """Return whether a folder is not empty, which then holds files that this run has not written."""
        return folder.is_dir() and any(folder.iterdir())


def check_free(folder: Path, flag: str = "output_dir") -> None:
    """Reject an output folder that is not empty; nothing is written.

    Args:
        flag: option that names the folder.

    Raises:
        CannotStart: the folder is not empty, or cannot be read.
    """
    try:
        if folder.exists() and any(folder.iterdir()):
            holds = _held(folder)
            raise CannotStart(f"{flag} {folder} is not empty{holds}: nothing is overwritten; {_works(flag, folder)}")
    except OSError as error:
        raise CannotStart(f"{flag} {folder} cannot be written: {error.strerror or error}") from None


def _works(flag: str, folder: Path) -> str:
    free = free_path(folder)
    if free is None:
        return f"choose another {flag}"
    words = (flag, str(free)) if flag.startswith("-") else (f"{flag}={free}",)
    return f"works: {shlex.join(words)}"


def _held(folder: Path) -> str:
    """Return the run that a folder belongs to, as text for a message; "" if none."""
    try:
        run_id = json.loads((folder / "run" / "run.json").read_text(encoding="utf-8"))["id"]
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return f" (run {run_id}: launch status {run_id})"


def claim(folder: Path, written: Written, flag: str = "output_dir") -> None:
    """Create an empty output folder atomically: of two jobs started at the same moment only one succeeds.

    Raises:
        CannotStart: the folder is not empty, or cannot be written.
    """
    check_free(folder, flag)
    try:
        written.folder(folder)
        if not made_here(folder / _OWN):
            raise CannotStart(f"{flag} {folder} is being used by another job: choose another one")
        written.made(folder / _OWN)
        probe = folder / f".launch-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise CannotStart(f"{flag} {folder} cannot be written: {error.strerror or error}") from None


def write(plan: LaunchPlan, environ: Mapping[str, str], written: Written) -> None:
    """Write the plan's files with their references resolved, each to a temporary name and then renamed.

    Raises:
        CannotStart: a file cannot be written.
    """
    for file in plan.files:
        _write(file, resolved(file.content, environ), written)


def resolved(text: str, environ: Mapping[str, str]) -> str:
    """Return a text with `${NAME}` references replaced from the environment; unknown ones stay."""
    return REFERENCE.sub(lambda match: environ.get(match.group(1), match.group(0)), text)


def write_as_is(files: Iterable[PlanFile], written: Written) -> None:
    """Write files without resolving references.

    Raises:
        CannotStart: a file cannot be written.
    """
    for file in files:
        _write(file, file.content, written)


def _write(file: PlanFile, content: str, written: Written) -> None:
    path = Path(file.path)
    try:
        written.folder(path.parent)
        written.file(private.temporary_name(path))
        written.file(path)
        private.write(path, content, file.mode)
    except OSError as error:
        raise CannotStart(f"{path} cannot be written: {error.strerror or error}") from None
    except UnicodeEncodeError:
        raise CannotStart(f"{shown(str(path))} cannot be written: its content is not UTF-8 text") from None


def made_here(folder: Path) -> bool:
    """Create a folder; False if it exists already. Of concurrent callers only one gets True."""
    try:
        folder.mkdir(mode=private.FOLDER)
    except FileExistsError:
        return False
    return True


def _try(remove: Callable[[], None]) -> None:
    try:
        remove()
    except OSError:
        return  # removed already, or a folder with files of others
