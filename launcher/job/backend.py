"""The backend: name, version, arguments and environment passed through."""

from collections.abc import Mapping
from typing import Any

from launcher.job.option import option
from launcher.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendChoice:
    """The training stack that runs the job."""

    name: str | None = option(None, "Backend.")
    version: str | None = option(None, "Version whose arguments are written; none: the backend's default.")
    args: Mapping[str, Any] = option({}, "Native arguments passed through as they are, checked against the catalogue.")
    env: Mapping[str, str] = option({}, "Environment variables for every node.")
