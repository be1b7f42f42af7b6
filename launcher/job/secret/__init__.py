"""Detects secrets, and replaces them in what is stored, shown or started."""

from launcher.job.secret.find import HIDDEN, REDACTED, find, looks_random, variable_of
from launcher.job.secret.hide import redacted, redacted_tree, without_secrets
from launcher.job.secret.names import is_secret
from launcher.job.secret.of_job import is_read_by_launcher, job_without_secrets, redacted_fields, text_fields
from launcher.job.secret.refer import Variables, by_reference

__all__ = [
    "HIDDEN",
    "REDACTED",
    "Variables",
    "by_reference",
    "find",
    "is_read_by_launcher",
    "is_secret",
    "job_without_secrets",
    "looks_random",
    "redacted",
    "redacted_fields",
    "redacted_tree",
    "text_fields",
    "variable_of",
    "without_secrets",
]
