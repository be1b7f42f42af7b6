"""What a job file may hold, as data for other programs: a table of fields, and JSON Schema."""
