"""Whether a process still runs."""

from pathlib import Path


def alive(pid: int) -> bool:
    """Tell whether a process runs; one that has ended, and nobody has asked how, does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # gone before it was opened, or while it was read
        return False
    return state != "Z"
