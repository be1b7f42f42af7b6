"""The documentation site: its sources put together, and built by Sphinx in English and Chinese."""
