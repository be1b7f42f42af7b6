"""Tokens for the trainer: from Megatron files, JSONL, or the text that ships with the project."""
