"""An imported job with overrides; what they leave keeps its place in the file."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from launcher.compose import compose
from launcher.importing.imported import Imported
from launcher.importing.job_file import job_yaml
from launcher.importing.judge import located
from launcher.job import Job, Origin


def job_with_overrides(imported: Imported, path: str, words: Sequence[str], config_dirs: Sequence[str]) -> Job:
    """Return the job of a file with overrides.

    Args:
        path: the file, as the user named it.
        words: overrides; they win over the file.
        config_dirs: the user's own configuration folders.

    Raises:
        ComposeError: the overrides do not fit.
    """
    with TemporaryDirectory(prefix="launch-import-") as folder:
        file = Path(folder, "job.yaml")
        file.write_text(job_yaml(imported, path, with_version=True), encoding="utf-8")
        job = compose([f"+job={file}", *words], config_dirs)
    places = located(imported).origins
    origins = {
        name: places.get(name, Origin(kind="recipe")) if str(file) in origin.where else origin
        for name, origin in job.origins.items()
    }
    return replace(job, origins=origins)
