"""Rules: jobs that this backend rejects and values that it changes."""
