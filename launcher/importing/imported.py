"""The result of an import: the job, the mapping of every argument, and notes for the user."""

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

from launcher.importing.notes import Note
from launcher.job import Job, Value, as_tree
from launcher.job.finding import Finding
from launcher.job.imported import ImportedFrom
from launcher.mapping.native import NativeArg, NativeArgs
from launcher.records import dataclass


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


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedInput:
    """The errors of an input as it is written, which the import itself needs.

    Attributes:
        read, native: the job and the arguments that were judged.
        job: the same job with the architecture of a model that the input only names.
        unreadable: why that model's config.json cannot be read.
        errors: findings of the rules that report errors.
    """

    read: Job
    native: NativeArgs
    job: Job
    unreadable: str
    errors: tuple[Finding, ...]


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
        dropped: keys of a file that equal the default, or that training does not read.
        warnings: assumptions, dropped values and repetitions.
        program: the command that was read, program and sub-command, or script.
        where: its location, `file:line`.
        exact: pass-through arguments set beside fields, so that the same backend gets the same arguments again.
        other_version: reason for assuming another version than the backend's default; empty: default, or requested.
        devices_specified: the input gives the number of devices.
        problems: with `partial`, the reasons for which the import would have been refused.
        judged: what the import found of the input's errors; it holds for this job and these arguments only.
    """

    backend: str
    version: str
    job: Job
    native: NativeArgs
    unmapped: tuple[NativeArg, ...] = ()
    mapped_args: tuple[ImportedArg, ...] = ()
    dropped: tuple[str, ...] = ()
    warnings: tuple[Note, ...] = ()
    program: str = ""
    where: str = ""
    problems: tuple[Note, ...] = ()
    other_version: str = ""
    devices_specified: bool = True
    exact: Mapping[str, Value] = field(default_factory=dict)
    judged: JudgedInput | None = field(default=None, repr=False, compare=False)

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


def with_source(imported: Imported) -> Imported:
    """Return the import with the record of the source script in its job."""
    return replace(imported, job=replace(imported.job, imported=source_of(imported)))


def source_of(imported: Imported) -> ImportedFrom:
    """Return the record of the source script for the job."""
    null = {arg.flag for arg in imported.native if arg.value is None}
    return ImportedFrom(
        backend=imported.backend,
        version=imported.version,
        program=imported.program or None,
        exact=tuple(imported.exact),
        null=tuple(flag for flag, value in imported.job.backend.args.items() if value is None and flag in null),
    )
