"""Maps the stored tensors of each format to slices of logical tensors."""
