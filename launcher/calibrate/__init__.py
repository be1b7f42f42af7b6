"""`launch calibrate`: a hardware file from short measured runs."""
