"""Status of a run, found by its id, from its directory and its queue. Never starts anything."""
