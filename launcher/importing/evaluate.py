"""Evaluates scripts with what is known of launchers, backends' programs and Slurm; its notes are those of an import."""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from launcher.importing.launchers import LAUNCHERS
from launcher.importing.notes import ImportRefused, Note
from launcher.importing.shell import evaluate
from launcher.importing.shell.diagnostics import Diagnostic, NotReadable
from launcher.importing.shell.host import Host
from launcher.importing.shell.state import State
from launcher.importing.slurm import request_of, with_header
from launcher.mapping.backend import backend_names, get_backend


def run_script(source: str, state: State, folder: Path | None) -> State:
    """Return the state after the script, including the commands that it would start.

    Raises:
        ImportRefused: the script is not bash.
    """
    state.host = _host()
    try:
        return evaluate.run_script(source, state, folder)
    except NotReadable as error:
        raise ImportRefused(notes([error.diagnostic])) from None


def notes(diagnostics: Iterable[Diagnostic]) -> list[Note]:
    """Return the diagnostics of a script as notes, secrets redacted."""
    return [Note(message=each.message, where=each.where, works=each.works) for each in diagnostics]


@cache
def _host() -> Host:
    programs = [program for name in backend_names() for program in get_backend(name).entry.programs]
    scripts = [script for name in backend_names() for script in get_backend(name).entry.scripts]
    names = "|".join(re.escape(name) for name in (*LAUNCHERS, *programs, "srun", "mpirun", "eval"))
    starts = re.compile(rf"\b({names}|[\w/]+\.py|\w+_launcher\.sh)\b")
    trains = re.compile(rf"\b({names}|{'|'.join(map(re.escape, scripts))}|\w+_launcher\.sh)\b|\$\S*\.py\b")
    return Host(starts=starts, trains=trains, with_header=with_header, variables=_variables)


def _variables(outer: Sequence[str]) -> Mapping[str, str]:
    return request_of(outer).variables()
