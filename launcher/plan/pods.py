"""What those that handle plans know of pods and of secrets."""

from launcher.job.pods import Pods, Volume
from launcher.job.secret import find, is_secret, redacted, without_secrets

__all__ = ["Pods", "Volume", "find", "is_secret", "redacted", "without_secrets"]
