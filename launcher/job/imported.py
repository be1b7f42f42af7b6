"""Origin of an imported job: keeps what the script has and no field holds."""

from collections.abc import Mapping
from typing import Any

from launcher.job.option import option
from launcher.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedFrom:
    """The script or configuration that a job file was imported from, for porting it to another backend."""

    backend: str | None = option(None, "Backend that the imported script was written for.")
    version: str | None = option(None, "Version of that backend; none: its default.")
    program: str | None = option(None, "Command that the script starts.")
    args: Mapping[str, Any] | None = option(
        None, "Arguments of the script without a field, in its own spelling; none: those of backend.args."
    )
    env: Mapping[str, str] = option({}, "Environment variables of the script, where they are not those of backend.env.")
    exact: tuple[str, ...] = option(
        (), "Arguments among these that repeat fields, kept to reproduce the script's exact command."
    )
    null: tuple[str, ...] = option(
        (), "Arguments among these that the imported file sets to null, which others that are null here do not write."
    )
    defaults: tuple[str, ...] = option(
        (),
        "Fields that no argument of the script sets: defaults of the backend it was written for.",
    )
    replaced: Mapping[str, Any] = option(
        {}, "Fields for which the backend that runs the job has a substitute, with the script's values."
    )
    accept: tuple[str, ...] = option(
        (),
        "Arguments of the script that may be dropped on another backend although that changes the model or its loss "
        "(all: every one).",
    )
