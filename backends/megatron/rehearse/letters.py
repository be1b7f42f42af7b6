"""A reward for answers of random weights, which earn nothing from the rewards that recipes name.

A plugin of ms-swift (`external_plugins`): loaded by its path in the environment of the ranks, where this project may
not be.
"""

from typing import Any

from swift.rewards import ORM, orms

NAME = "rehearsal_letters"


class RehearsalLetters(ORM):
    """The share of an answer's characters that are letters or spaces of plain text."""

    def __call__(self, completions: list[str], **_kwargs: Any) -> list[float]:
        """Return a reward from 0 to 1 for each answer."""
        return [sum(_is_plain(each) for each in text) / max(1, len(text)) for text in completions]


def _is_plain(character: str) -> bool:
    return character == " " or (character.isascii() and character.isalpha())


orms[NAME] = RehearsalLetters
