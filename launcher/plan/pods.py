"""Pods and secrets, re-exported for code that handles plans."""

from launcher.job.pods import Pods, Volume
from launcher.job.secret import find, is_secret, redacted, without_secrets

__all__ = ["Pods", "Volume", "find", "is_secret", "redacted", "without_secrets"]
