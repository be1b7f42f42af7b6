"""Finds the record of a run by its id or folder."""

from pathlib import Path

from launcher.executors.record import Record, read_record
from launcher.executors.register import folder_of, registered
from launcher.job.migrations import WrongSchema
from launcher.nearest import nearest


class UnknownRun(LookupError):
    """No run of this user has this id or folder; the message suggests what would work."""


def find_run(text: str) -> Record:
    """Return the record of the run with this id, or in this folder.

    Raises:
        UnknownRun: there is no such run.
        WrongSchema: a newer version of this program started it.
    """
    folder = folder_of(text)
    if folder is not None:
        record = read_record(folder)
        if record is not None and record.id == text:
            return record
        held = f"; the folder now holds run {record.id}" if record is not None else ""
        raise UnknownRun(f"run {text} is registered, but {folder} no longer holds it{held}")
    if Path(text).is_dir():
        record = read_record(Path(text).absolute())
        if record is not None:
            return record
        raise UnknownRun(f"{text} is a folder, but no run was started in it (no run/run.json)")
    ids = [entry.id for entry in registered()]
    near = nearest(text, ids, cutoff=0.5) or ids[-3:]
    hint = f"; works: {' · '.join(near)}" if near else "; no run is registered yet"
    raise UnknownRun(f"there is no run {text!r}{hint}")


def all_runs() -> tuple[list[Record], list[str]]:
    """Return the records of all remembered runs, oldest first, and why others of them cannot be read."""
    records: list[Record] = []
    problems: list[str] = []
    for entry in registered():
        try:
            record = read_record(entry.folder)
        except WrongSchema as error:
            problems.append(f"run {entry.id}: {error}")
            continue
        # A later run may have taken over the folder: it has an entry of its own.
        if record is not None and record.id == entry.id:
            records.append(record)
    return records, problems
