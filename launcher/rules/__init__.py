"""Rules: checks of a job before anything starts."""

from launcher.job.finding import Finding, Fix

__all__ = ["Finding", "Fix"]
