"""What the stored tensors of each format mean: names, and boxes of logical tensors."""
