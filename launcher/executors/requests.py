"""Requests of users to stop a run: in its folder, or beside its id in the register where that folder is gone."""

from pathlib import Path

from launcher.executors.record import (
    Record,
    Request,
    read_request,
    request_from,
    request_tree,
    withdraw_request,
    write_request,
)
from launcher.executors.register import entry_of, write_asked

# Ends that a request to stop explains.
UNSURE = ("failed", "lost", "stopped")


def requested(run_id: str, folder: Path, *, gone: bool = False) -> Request | None:
    """Return the request to stop a run; None: there is none.

    Args:
        gone: its folder was removed, or holds another run.
    """
    entry = entry_of(run_id)
    if entry is not None and entry.folder == folder and entry.asked is not None:
        return request_from(entry.asked)
    return None if gone else read_request(folder)


def ask(record: Record, *, sweep: bool) -> bool:
    """Write down that this user asks a run to stop, and return whether it was: an earlier request stays."""
    folder = Path(record.folder)
    if requested(record.id, folder, gone=record.gone) is not None:
        return False
    if record.gone:
        return write_asked(record.id, folder, request_tree(sweep=sweep))
    try:
        write_request(folder, sweep=sweep)
    except OSError:  # another user's folder, or a full disk: it is stopped all the same
        return False
    return True


def withdraw(record: Record) -> None:
    """Remove the request, which could not be passed on."""
    if record.gone:
        write_asked(record.id, Path(record.folder), None)
    else:
        withdraw_request(Path(record.folder))


def as_asked_when_gone(record: Record, state: str, why: str) -> tuple[str, str]:
    """Return state and reason of an end: `stopped`, and by whom, if a user asked for it after the folder was gone."""
    asked = requested(record.id, Path(record.folder), gone=True) if state in UNSURE else None
    return (state, why) if asked is None else ("stopped", asked.shown)
