"""What must be there before a job starts: software, devices, data, disk, and the same on all machines."""
