"""Mapping: one table for each backend, read in both directions, and what a backend is to the program."""
