"""Checks of Launch on a machine with one GPU."""
