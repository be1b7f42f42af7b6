"""Searches the parallel strategy of a job: layouts are checked by the rules, estimated, and ranked by step time."""
