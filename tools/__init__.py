"""What developers run: catalogue extraction, docs generation, benchmarks."""
