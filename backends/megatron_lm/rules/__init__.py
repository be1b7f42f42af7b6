"""Rules: what this backend refuses or changes."""
