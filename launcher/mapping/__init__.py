"""Mapping: the backend interface, and one table for each backend that is read in both directions."""
