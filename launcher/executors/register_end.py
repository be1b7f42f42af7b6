"""Keeps the end of a run beside its id, where it outlasts the run's folder."""

from pathlib import Path

from launcher.executors.record import Record, read_status
from launcher.executors.register import remember


def register_end(record: Record, state: str) -> None:
    """Register how a run ended, with the exit code, reason and time that its folder has."""
    folder = Path(record.folder)
    status = read_status(folder)
    code = status.get("code")
    remember(
        record.id,
        folder,
        record.as_tree(),
        state,
        code=code if isinstance(code, int) else None,
        why=str(status.get("reason", "")),
        at=str(status.get("at", "")),
    )
