"""Reads shell scripts, YAML, JSON and plain arguments and returns the job that they describe."""
