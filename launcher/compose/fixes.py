"""What is offered in place of a mistake on the command line composes: each offer is tried before it is made."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from launcher.compose.errors import NAME, OPTION, VALUE, ComposeError, Mistake

# So many mistakes of one command line get tried offers; a line with more is read again anyway.
_MOST = 8
# Nothing is near where more names than these are offered: they are all that there are.
_FEW = 3
# Rules whose offers take the place of one word.
_OF_A_WORD = (NAME, OPTION, VALUE)

Compose = Callable[[Sequence[str]], object]


def tried(mistakes: Sequence[Mistake], words: Sequence[str], compose: Compose) -> list[Mistake]:
    """Return mistakes with those of their offers that compose in place of the word.

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
        against = against_word(word, others, compose)
        if not against:
            works.append(name)
        elif mistake.rule == NAME and not works:
            # The name is right and the value is not: what the field takes is offered with it.
            works += [fix for each in against for fix in each.fixes if not against_word(fix, others, compose)][:3]
    return replace(mistake, works=tuple(works))


def against_word(word: str, others: Sequence[str], compose: Compose) -> list[Mistake]:
    """Return the mistakes that a word makes beside others."""
    try:
        compose([*others, word])
    except ComposeError as error:
        return [mistake for mistake in error.mistakes if mistake.where == word]
    return []
