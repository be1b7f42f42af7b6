"""The executor `local`: this machine."""
