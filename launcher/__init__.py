"""Launch: one LLM training job, described once, started on any of several training stacks."""

__version__ = "0.1.0"
