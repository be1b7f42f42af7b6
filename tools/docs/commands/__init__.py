"""Commands in the documentation: found in the pages, run, and compared with the output recorded below them."""
