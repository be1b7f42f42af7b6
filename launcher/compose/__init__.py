"""Composition: a user's words and YAML files become one typed job. The only room that imports hydra."""

from launcher.compose.compose import compose, tried_word
from launcher.compose.errors import ComposeError
from launcher.compose.sweep import sweep

__all__ = ["ComposeError", "compose", "sweep", "tried_word"]
