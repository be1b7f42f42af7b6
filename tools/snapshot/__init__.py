"""Snapshots of verdicts, findings, native arguments and the public surface, to compare two commits."""
