"""Syntax checks of the job's text that whoever renders or starts a plan asks once more."""

from launcher.job.syntax import (
    escaped,
    is_host,
    is_ssh_host,
    is_text,
    is_variable,
    sbatch_options_problem,
    shown,
    ssh_options_problem,
)

__all__ = [
    "escaped",
    "is_host",
    "is_ssh_host",
    "is_text",
    "is_variable",
    "sbatch_options_problem",
    "shown",
    "ssh_options_problem",
]
