"""Pipeline schedules: the order of steps on each stage, micro-batches in flight, simulated times and bounds of them."""
