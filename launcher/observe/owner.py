"""Whether a run is this user's: its record may have been written by anybody, and may name any user and process."""

from dataclasses import replace
from functools import cache
from pathlib import Path

from launcher.executors import private
from launcher.executors.record import RECORD, RUN, Record, user_name
from launcher.executors.register import entry_of
from launcher.mapping.backend import backend_names, get_backend


def ownership_problem(record: Record) -> str:
    """Return why a run is not this user's; "" if it is."""
    own = user_name()
    if record.user != own:
        return f"run {record.id} belongs to {record.user}, and you are {own}"
    return "" if record.gone or is_own(record) else f"run {record.id}: {record.folder} is another user's"


def not_installed(record: Record) -> str:
    """Return why a run whose executor is unknown on this machine cannot be asked for or changed here."""
    return f"its executor {record.executor!r} is not installed here"


def is_own(record: Record) -> bool:
    """Return whether the files of a run are this user's.

    On a file system that shows another owner (FUSE, CIFS) the register tells.
    """
    run, entry = Path(record.folder) / RUN, entry_of(record.id)
    registered = entry is not None and entry.folder == Path(record.folder)
    return registered or (private.is_own(run) and private.is_own(run / RECORD))


def is_same_process(record: Record) -> bool:
    """Return whether the process that a record names is the one that the register names for the run, if it knows it."""
    entry = entry_of(record.id)
    if record.gone or entry is None or entry.record is None or entry.folder != Path(record.folder):
        return True
    kept = entry.record
    return (kept.get("pid"), kept.get("start")) == (record.pid, record.start)


def trusted(record: Record) -> Record:
    """Return a record whose regular expressions can be applied to logs: of another user only those that backends have.

    An expression that another user wrote may backtrack without end.
    """
    if record.gone or is_own(record) or not (record.iteration_line or record.figures):
        return record
    lines, figures = _known_patterns()
    return replace(
        record,
        iteration_line=record.iteration_line if record.iteration_line in lines else "",
        figures=tuple(figure for figure in record.figures if figure[1] in figures),
    )


@cache
def _known_patterns() -> tuple[frozenset[str], frozenset[str]]:
    watches = [get_backend(name).watch for name in backend_names()]
    figures = [figure for watch in watches for figure in watch.figures]
    lines = frozenset(watch.iteration_line for watch in watches)
    return lines, frozenset(pattern for _, pattern, _ in figures)
