"""The same training on several backends, measured: loss and gradient norm of each iteration, side by side."""
