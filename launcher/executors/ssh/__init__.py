"""The executor `ssh`: ssh."""
