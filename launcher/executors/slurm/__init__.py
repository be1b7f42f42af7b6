"""The executor `slurm`: Slurm."""
