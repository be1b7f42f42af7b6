"""Finds the record of a run by its id or folder."""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from launcher.executors import private
from launcher.executors.record import RECORD, RUN, Record, read_record, record_from
from launcher.executors.register import Registered, entry_of, registered
from launcher.job.migrations import WrongSchema
from launcher.nearest import nearest
from launcher.observe.owner import trusted
from launcher.plan.executor import find_executor


class UnknownRun(LookupError):
    """No run of this user has this id or folder; the message suggests what would work."""


def find_run(text: str) -> Record:
    """Return the record of the run with this id, or in this folder.

    Raises:
        UnknownRun: there is no such run.
        WrongSchema: a newer version of this program started it.
    """
    entry = entry_of(text)
    if entry is not None:
        record = _record(entry)
        if record is not None:
            return record
        raise UnknownRun(f"run {text} is registered, but {entry.folder} no longer holds it")
    if Path(text).is_dir():
        record = read_record(Path(text).absolute())
        if record is not None:
            return trusted(record)
        raise UnknownRun(f"{text} is a folder, but {_no_record(Path(text))}")
    ids = [entry.id for entry in registered()]
    near = nearest(text, ids, cutoff=0.5) or ids[-3:]
    hint = f"; works: {' · '.join(near)}" if near else "; no run is registered yet"
    raise UnknownRun(f"there is no run {text!r}{hint}")


def _no_record(folder: Path) -> str:
    """Return why a folder holds no record that can be read."""
    try:
        private.read(folder / RUN / RECORD)
    except FileNotFoundError:
        return f"no run was started in it (no {RUN}/{RECORD})"
    except OSError as error:
        return f"its {RUN}/{RECORD} cannot be read: {error.strerror or error}"
    return f"its {RUN}/{RECORD} is damaged: it is no record of a run"


def ended_and_gone() -> list[str]:
    """Return the ids of the runs that have ended and whose folder was removed, or holds another run; oldest first."""
    found = []
    for entry in registered():
        with contextlib.suppress(WrongSchema):
            record = _record(entry)
            if record is not None and record.gone and entry.state:
                found.append(entry.id)
    return found


def all_runs() -> tuple[list[Record], list[str]]:
    """Return the records of all remembered runs, oldest first, and why others of them cannot be read.

    A run whose folder is gone is among them until its end is known.
    """
    records: list[Record] = []
    problems: list[str] = []
    for entry in registered():
        try:
            record = _record(entry)
        except WrongSchema as error:
            problems.append(f"run {entry.id}: {error}")
            continue
        if record is not None and not (record.gone and entry.state):
            records.append(record)
    return records, problems


def _is_of_node(record: Record, entry: Mapping[str, Any]) -> bool:
    """Return whether a registered record is of one node of the platform's job whose run is in the folder."""
    executor = find_executor(record.executor)
    same = bool(record.handle) and record.handle == entry.get("handle")
    return same and executor is not None and executor.here


def _record(entry: Registered) -> Record | None:
    """Return the record in the run's folder, or what the register kept of it; a later run may have taken the folder."""
    record = read_record(entry.folder)
    if record is not None and record.id == entry.id:
        return record
    if entry.record is None or (record is not None and _is_of_node(record, entry.record)):
        return None
    return record_from(dict(entry.record), entry.folder, f"run {entry.id}", gone=True)
