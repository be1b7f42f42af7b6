"""Decides which existing files and folders a command may replace, and replaces them without data loss.

No library is used: those for atomic writing replace any existing file. This package first checks whether the existing
file is of the same kind or other user data.
"""
