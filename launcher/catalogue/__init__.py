"""Catalogue: what each version of a backend accepts, as data, and how versions are ordered."""
