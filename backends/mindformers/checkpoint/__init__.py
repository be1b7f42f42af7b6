"""How MindFormers stores weights: `launch convert` finds it through the backend's record."""

from backends.mindformers.checkpoint.disk import FORMAT

__all__ = ["FORMAT"]
