"""Mapping table between canonical fields and native arguments, with the unsupported fields."""
