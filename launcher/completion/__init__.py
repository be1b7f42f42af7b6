"""Completion of command lines from an index on disk: no verb, field or backend is imported for it."""
