"""Errors of the conversion's command line."""

from launcher.convert.containers.errors import ConvertError


class WrongWord(ConvertError):
    """An invalid command line argument: an unknown name or a missing folder."""
