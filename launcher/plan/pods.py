"""What those that handle plans know of pods and of secrets."""

from launcher.job.pods import Pods, Volume
from launcher.job.secret import is_secret, without_secrets

__all__ = ["Pods", "Volume", "is_secret", "without_secrets"]
