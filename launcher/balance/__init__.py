"""Layers and recomputation spread over pipeline stages so that a step takes the least time within the memory limit."""
