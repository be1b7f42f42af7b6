"""Faults while jobs run: what is done to a run, the state and the exit code that must follow, and what may be left."""
