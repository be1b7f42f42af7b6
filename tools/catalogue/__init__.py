"""Makes `backends/*/catalogue` from the backends' own parsers; see `python -m tools.catalogue --help`."""
