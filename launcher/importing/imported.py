"""The result of an import: the job, the mapping of every argument, and notes for the user."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from launcher.importing.notes import Note
from launcher.job import Job, Value, as_tree
from launcher.job.imported import ImportedFrom
from launcher.mapping.native import NativeArg, NativeArgs


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedArg:
    """The mapping of one argument of the input.

    Attributes:
        flag: name in the catalogue's spelling.
        value: typed value.
        fields: canonical fields; empty: pass-through (`backend.args`), or implied.
        implied: the launcher writes the same value by default, or the argument has no effect.
        where: `file:line`, if known.
    """

    flag: str
    value: Value
    fields: tuple[str, ...] = ()
    implied: bool = False
    where: str = ""


DEVICES = ("cluster.nodes", "cluster.devices_per_node")


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """A job read from a command line or file.

    Attributes:
        backend, version: backend and version of the input.
        job: the canonical job; arguments without a canonical field are in `job.backend.args`.
        native: the arguments as parsed, typed.
        unmapped: arguments without a canonical field.
        mapped_args: the mapping of every argument.
        warnings: assumptions, dropped values and repetitions.
        program: the command that was read, program and sub-command, or script.
        where: its place, `file:line`.
        exact: pass-through arguments set beside fields, so that the same backend gets the same arguments again.
        other_version: reason for assuming another version than the backend's default; empty: default, or requested.
        devices_specified: the input gives the number of devices.
        problems: with `partial`, the reasons for which the import would have been refused.
    """

    backend: str
    version: str
    job: Job
    native: NativeArgs
    unmapped: tuple[NativeArg, ...] = ()
    mapped_args: tuple[ImportedArg, ...] = ()
    warnings: tuple[Note, ...] = ()
    program: str = ""
    where: str = ""
    problems: tuple[Note, ...] = ()
    other_version: str = ""
    devices_specified: bool = True
    exact: Mapping[str, Value] = field(default_factory=dict)

    def as_tree(self) -> Mapping[str, Any]:
        """Return the output of `launch import --json`: backend, version, job, unmapped, warnings, and more."""
        return {
            "backend": self.backend,
            "version": self.version,
            "job": as_tree(self.job),
            "unmapped": [{"flag": arg.flag, "value": arg.value} for arg in self.unmapped],
            "warnings": [str(note) for note in self.warnings],
            "problems": [str(note) for note in self.problems],
            "program": self.program,
            "where": self.where,
            "args": [
                {
                    "flag": each.flag,
                    "value": each.value,
                    "fields": list(each.fields),
                    "where": each.where,
                    "implied": each.implied,
                }
                for each in self.mapped_args
            ],
        }


def source_of(imported: Imported) -> ImportedFrom:
    """Return the record of the source script for the job."""
    return ImportedFrom(
        backend=imported.backend,
        version=imported.version,
        program=imported.program or None,
        exact=tuple(imported.exact),
    )
