"""Reads what people have (shell scripts, YAML, JSON, plain arguments) and returns the job that it describes."""
