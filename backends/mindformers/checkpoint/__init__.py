"""MindFormers' checkpoint formats, which `launch convert` finds through the backend's record."""

from backends.mindformers.checkpoint.disk import FORMAT

__all__ = ["FORMAT"]
