"""What became of a run: found by its id, judged by its directory and its queue. Reads, and never starts anything."""
