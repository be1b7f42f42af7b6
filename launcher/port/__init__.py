"""A job that was written for one backend, on another: what is carried over, what is left out, and why."""
