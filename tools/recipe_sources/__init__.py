"""Recipes compared with the files that they were copied from."""
