"""Mapping table: which canonical field is which native argument, and what cannot be expressed."""
