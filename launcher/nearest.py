"""Suggests known names for a misspelled one: fields, options, values, arguments, rules and verbs."""

import re
from collections.abc import Iterable

# Names whose similarity is this far below the best one are not suggested.
_MARGIN = 0.12
# Similarity of a name that starts with the typed text, such as h100_80g for h100.
_CONTINUED = 0.9
_SEPARATORS = re.compile(r"[-_. ]")


def nearest(typed: str, names: Iterable[str], limit: int = 3, cutoff: float = 0.6) -> tuple[str, ...]:
    """Return the names that are most similar to the typed text, nearest first.

    Names that differ from it only in case and separators are returned without others.

    Args:
        typed: text that the user wrote.
        names: all candidates.
        limit: maximum number of names.
        cutoff: minimum similarity, from 0 to 1 (difflib's ratio of the plain texts).
    """
    from difflib import SequenceMatcher

    wanted = plain(typed)
    known = {name: plain(name) for name in names}
    same = [name for name, text in known.items() if text == wanted]
    if same:
        return tuple(same[:limit])
    matcher = SequenceMatcher(autojunk=False)
    matcher.set_seq2(wanted)
    scores: dict[str, float] = {}
    for name, text in known.items():
        matcher.set_seq1(text)
        if matcher.real_quick_ratio() >= cutoff and matcher.quick_ratio() >= cutoff:
            scores[name] = matcher.ratio()
        if len(wanted) > 1 and text.startswith(wanted):
            scores[name] = max(scores.get(name, 0.0), _CONTINUED)
    least = max(cutoff, max(scores.values(), default=0.0) - _MARGIN)
    found = sorted((name for name, score in scores.items() if score >= least), key=lambda name: -scores[name])
    return tuple(found[:limit])


def plain(name: str) -> str:
    """Return a name without case, separators and leading dashes."""
    return _SEPARATORS.sub("", name.lower())
