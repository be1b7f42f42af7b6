"""The table of docs/parity.md: `launch parity` over model families and layouts, on every backend that is here."""
