"""Composes the job of a MindFormers YAML that a command of Taylor names."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from launcher.cli.options import composed_of
from launcher.job import Job


def job_of_yaml(file: str | Path, overrides: Sequence[str], config_dirs: Sequence[str]) -> Job:
    """Compose the job that a configuration describes, with overrides.

    Raises:
        ImportRefused: it cannot be read.
        ComposeError: the overrides do not fit.
    """
    from launcher.importing.job_file import job_yaml
    from launcher.importing.read_command import ImportOptions
    from launcher.importing.read_file import read_file
    from launcher.mapping.backend import get_backend

    (imported,) = read_file(file, ImportOptions())
    newest = get_backend(imported.backend).default_version
    with tempfile.TemporaryDirectory(prefix="launch-") as folder:
        job = Path(folder, "job.yaml")
        job.write_text(job_yaml(imported, str(file), with_version=imported.version != newest), encoding="utf-8")
        return composed_of([f"+job={job}", *overrides], config_dirs)
