"""Asks the worker processes about the overrides of a session, after they are checked."""

from collections.abc import Sequence
from typing import Any

from launcher.job.finding import Finding
from launcher.ui.pool import Busy, Pool, Stopped
from launcher.ui.words import refused


def answer(pool: Pool, words: Sequence[str] | None) -> dict[str, Any]:
    """Return the verdict on the words of a session; what cannot be computed is a mistake with the reason."""
    words = list(words or ())
    wrong = refused(words)
    if wrong:
        return {"mistakes": [_mistake(f"{each.word}: {each.why}" if each.word else each.why) for each in wrong]}
    try:
        found = pool.answer("answers.plan", words)
    except Busy:
        return {"mistakes": [_mistake("the server is busy; change anything to ask again")]}
    except Stopped as error:
        return {"mistakes": [_mistake(f"no answer: {error}")]}
    assert isinstance(found, dict)
    return found


def _mistake(message: str) -> dict[str, Any]:
    return Finding(rule="JOB-WORDS", severity="error", message=message).as_tree()
