"""Executors receive a launch plan and know nothing of jobs or backends. The only package that starts processes."""
