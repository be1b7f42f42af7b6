"""Rules: what would go wrong, said before anything starts."""

from launcher.job.finding import Finding, Fix

__all__ = ["Finding", "Fix"]
