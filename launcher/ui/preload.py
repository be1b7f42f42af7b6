"""Imported by the process from which the workers are forked, so that they share its memory and start at once."""

from launcher.ui.worker import warm

warm()
