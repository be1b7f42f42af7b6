"""Composes overrides and YAML files into one typed job. The only package that imports hydra."""

from launcher.compose.compose import compose, composes_with
from launcher.compose.errors import ComposeError
from launcher.compose.sweep import sweep

__all__ = ["ComposeError", "compose", "composes_with", "sweep"]
