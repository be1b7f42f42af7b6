"""Keeps the end of a run beside its id, where it outlasts the run's folder."""

from pathlib import Path

from launcher.executors.record import Record, read_status
from launcher.executors.register import remember
from launcher.executors.requests import as_asked_when_gone


def register_end(record: Record, state: str) -> None:
    """Register how a run ended, with the exit code, reason and time that its folder has."""
    folder = Path(record.folder)
    status = read_status(folder)
    code = status.get("code")
    state, why = as_asked_when_gone(record, state, str(status.get("reason", "")))
    remember(
        record.id,
        folder,
        record.as_tree(),
        state,
        code=code if isinstance(code, int) else None,
        why=why,
        at=str(status.get("at", "")),
    )
