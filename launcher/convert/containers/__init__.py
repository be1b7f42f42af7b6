"""Checkpoint file formats: where each tensor is stored. Independent of models; torch is not required."""
