"""Rules: settings that this backend rejects or changes."""
