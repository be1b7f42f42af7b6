"""Checkpoints there and back, with proof: names, shapes and layouts are known, so bytes move, nothing is computed."""
