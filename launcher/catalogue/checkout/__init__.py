"""Reads the command-line parser of a checkout from its source, without importing or executing any of it."""
