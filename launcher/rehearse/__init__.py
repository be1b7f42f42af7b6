"""Rehearsal: trains a job with megatron-core on this machine, with or without an accelerator."""
