"""Composition: a user's words and YAML files become one typed job. The only room that imports hydra."""

from launcher.compose.compose import compose, sweep
from launcher.compose.errors import ComposeError

__all__ = ["ComposeError", "compose", "sweep"]
