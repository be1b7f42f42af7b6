"""The rehearsal: a job really trained by megatron-core on this machine, with or without an accelerator."""
