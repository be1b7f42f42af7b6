"""Short names for runs: `qwen3_8b-2` is the second run of that name. One small file for each, on this machine."""

import contextlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from launcher.executors import private
from launcher.records import dataclass

_NUMBER = re.compile(r"(?P<name>.+)-(?P<number>\d+)\.json")
_UNFIT = re.compile(r"[^A-Za-z0-9_.]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """A run that this user started: its id, the absolute path of its folder, and its record as it was last written.

    Attributes:
        state: how it ended; "": not known to have ended.
        code, why, at: exit code, reason and time of that end.
        asked: the request to stop it that was made after its folder, which has requests else, was gone.
    """

    id: str
    folder: Path
    record: Mapping[str, Any] | None = None
    state: str = ""
    code: int | None = None
    why: str = ""
    at: str = ""
    asked: Mapping[str, Any] | None = None


def home(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of the run register: LAUNCH_HOME, or `launch` in the XDG state folder."""
    if environ.get("LAUNCH_HOME"):
        return Path(environ["LAUNCH_HOME"]).expanduser()
    state = environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "launch"


def reserve(name: str, folder: Path) -> str:
    """Return a new id for a run in a folder, and register it; if nothing can be written it is not registered."""
    stem = _UNFIT.sub("-", name).strip("-.") or "job"
    runs = home() / "runs"
    try:
        _make_private(runs)
        number = 1 + max((entry[1] for entry in _numbers(runs) if entry[0] == stem), default=0)
        while True:
            try:
                file = os.open(runs / f"{stem}-{number}.json", os.O_WRONLY | os.O_CREAT | os.O_EXCL, private.FILE)
            except FileExistsError:
                number += 1
                continue
            with os.fdopen(file, "w", encoding="utf-8") as stream:
                json.dump({"folder": str(folder)}, stream)
            return f"{stem}-{number}"
    except OSError:
        return f"{stem}-{os.getpid()}"


def _make_private(runs: Path) -> None:
    """Create the folder of runs; files that an earlier version left readable for others become private."""
    if not runs.parent.exists():
        private.make_folder(runs.parent)
    wider = runs.exists() and private.tighten(runs)
    private.make_folder(runs)
    for file in runs.glob("*.json") if wider else ():
        private.tighten(file)


def release(run_id: str) -> None:
    """Remove the id of a run that was never started."""
    (home() / "runs" / f"{run_id}.json").unlink(missing_ok=True)


def remember(
    run_id: str,
    folder: Path,
    record: Mapping[str, Any],
    state: str = "",
    *,
    code: int | None = None,
    why: str = "",
    at: str = "",
) -> None:
    """Keep the record of a run beside its id, so that the run is found when its folder is gone.

    Ids repeat: a copy of the folder, or another user's run, is not the one that is registered. A request to stop it is
    kept with its end, and forgotten when it is started again.

    Args:
        state, code, why, at: its end, as of `Registered`.
    """
    file = home() / "runs" / f"{run_id}.json"
    entry = entry_of(run_id)
    if entry is None or entry.folder != folder:
        return  # the id could not be registered, or is of another run
    end = {"state": state, "code": code, "why": why, "at": at, "asked": entry.asked if state else None}
    with contextlib.suppress(OSError):  # a full disk: its folder has the record, too
        _write(file, {"folder": str(folder), "record": record, **end})


def write_asked(run_id: str, folder: Path, asked: Mapping[str, Any] | None) -> bool:
    """Keep a request to stop a run whose folder is gone, or remove it (None); return whether it was written."""
    file = home() / "runs" / f"{run_id}.json"
    entry = entry_of(run_id)
    if entry is None or entry.folder != folder:
        return False
    try:
        _write(file, {**json.loads(file.read_text(encoding="utf-8")), "asked": asked})
    except (OSError, ValueError):  # a full disk: it is stopped all the same
        return False
    return True


def _write(file: Path, tree: Mapping[str, Any]) -> None:
    began = file.stat()
    private.write(file, json.dumps(tree))
    os.utime(file, ns=(began.st_atime_ns, began.st_mtime_ns))  # runs are listed in the order of their start


def registered() -> list[Registered]:
    """Return all registered runs, oldest first; those of earlier versions without a record only with their folder."""
    runs = home() / "runs"
    files = sorted(runs.glob("*.json"), key=lambda path: path.stat().st_mtime) if runs.is_dir() else ()
    found = (entry_of(file.stem) for file in files)
    return [entry for entry in found if entry is not None and (entry.folder.is_dir() or entry.record is not None)]


def entry_of(run_id: str) -> Registered | None:
    """Return what the register holds of a run; None for an id that is not registered."""
    if "/" in run_id:
        return None
    try:
        tree = json.loads((home() / "runs" / f"{run_id}.json").read_text(encoding="utf-8"))
        folder, record, code, asked = tree["folder"], tree.get("record"), tree.get("code"), tree.get("asked")
        state, why, at = (str(tree.get(name, "")) for name in ("state", "why", "at"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    if not isinstance(folder, str) or not isinstance(record, dict | None) or not isinstance(asked, dict | None):
        return None
    code = code if isinstance(code, int) else None
    end = {"state": state, "why": why, "at": at}
    return Registered(id=run_id, folder=Path(folder), record=record, code=code, asked=asked, **end)


def _numbers(runs: Path) -> list[tuple[str, int]]:
    matches = (_NUMBER.fullmatch(path.name) for path in runs.iterdir())
    return [(match["name"], int(match["number"])) for match in matches if match]
