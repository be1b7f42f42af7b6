"""Verified checkpoint conversion in both directions: copies bytes by known names, shapes and layouts."""
