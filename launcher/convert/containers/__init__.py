"""Bytes on disk: where the tensors of a checkpoint lie, whatever they mean. No model is known here, no torch needed."""
