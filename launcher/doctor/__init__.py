"""Checks before a job starts: software, devices, data, disk, and the same software on all machines."""
