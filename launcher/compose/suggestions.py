"""Suggestions for a mistake on the command line: each one is composed in place of the word before it is made."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from launcher.compose.errors import NAME, OPTION, VALUE, ComposeError, Mistake

# The suggestions of so many mistakes of one command line are composed; those of the others are names alone.
_MOST = 8
# More suggestions than these are all names that exist: none is near.
_FEW = 3
# Rules whose suggestions take the place of one word.
_OF_A_WORD = (NAME, OPTION, VALUE)

Compose = Callable[[Sequence[str]], object]


def verified(mistakes: Sequence[Mistake], words: Sequence[str], compose: Compose) -> list[Mistake]:
    """Return mistakes with those of their suggestions that compose in place of the word.

    Args:
        mistakes: all of one command line.
        words: the command line.
        compose: composes words, and raises ComposeError.
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
            # The name is right and the value is not: values that the field takes are suggested with it.
            works += [fix for each in against for fix in each.fixes if not mistakes_of_word(fix, others, compose)][:3]
    return replace(mistake, works=tuple(works))


def mistakes_of_word(word: str, others: Sequence[str], compose: Compose) -> list[Mistake]:
    """Return the mistakes that a word makes beside others."""
    try:
        compose([*others, word])
    except ComposeError as error:
        return [mistake for mistake in error.mistakes if mistake.where == word]
    return []
