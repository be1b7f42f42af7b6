"""Distributes layers and recomputation over pipeline stages for the least step time within the memory limit."""
