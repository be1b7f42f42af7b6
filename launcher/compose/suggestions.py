"""Verifies suggestions for command-line mistakes by composing each one in place of the override."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from launcher.compose.errors import NAME, OPTION, VALUE, ComposeError, Mistake

# Maximum number of mistakes per command line whose suggestions are verified; others are suggested unverified.
_MOST = 8
# More suggestions than this are a list of all existing names: none is near.
_FEW = 3
# Rules whose suggestions replace one override.
_OF_A_WORD = (NAME, OPTION, VALUE)

Compose = Callable[[Sequence[str]], object]


def verified(mistakes: Sequence[Mistake], words: Sequence[str], compose: Compose) -> list[Mistake]:
    """Return mistakes with only those suggestions that compose in place of the override.

    Args:
        mistakes: all of one command line.
        words: the command line.
        compose: function that composes overrides or raises ComposeError.
    """
    wrong = {mistake.where for mistake in mistakes}
    others = [word for word in words if word not in wrong]
    return [
        _tried(mistake, others, compose) if number < _MOST and mistake.where in words else mistake
        for number, mistake in enumerate(mistakes)
    ]


def _tried(mistake: Mistake, others: list[str], compose: Compose) -> Mistake:
    if mistake.rule not in _OF_A_WORD or mistake.fixes == mistake.works or len(mistake.works) > _FEW:
        return mistake
    works: list[str] = []
    for name, word in zip(mistake.works, mistake.fixes, strict=False):
        against = mistakes_of_word(word, others, compose)
        if not against:
            works.append(name)
        elif mistake.rule == NAME and not works:
            # Right name, wrong value: valid values of the field are suggested with it.
            works += [fix for each in against for fix in each.fixes if not mistakes_of_word(fix, others, compose)][:3]
    return replace(mistake, works=tuple(works))


def mistakes_of_word(word: str, others: Sequence[str], compose: Compose) -> list[Mistake]:
    """Return the mistakes in one override when composed with others."""
    try:
        compose([*others, word])
    except ComposeError as error:
        return [mistake for mistake in error.mistakes if mistake.where == word]
    return []
