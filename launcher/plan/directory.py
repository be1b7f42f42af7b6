"""The launcher's own folder of a run, and the one place where its name is decided."""

from launcher.job import Job

DEFAULT_ROOT = "launch_output"


def output_dir(job: Job) -> str:
    """Return the folder for what the launcher writes itself: as given, else `launch_output/<name>`."""
    return job.output_dir or f"{DEFAULT_ROOT}/{job.name or 'job'}"
