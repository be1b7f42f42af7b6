"""Rules: what would go wrong, said before anything starts."""

from launcher.rules.finding import Finding, Fix

__all__ = ["Finding", "Fix"]
