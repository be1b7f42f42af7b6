"""What may stand at the cursor: verbs, options, overrides and their values, from the index and the file system."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from launcher.completion import files
from launcher.completion.index import Index
from launcher.completion.overrides import override_candidates

Candidate = tuple[str, str]
"""A whole word, and its description."""

PartOfIndex = Callable[[str], Index]
"""Reads another part of the index: `rules`, or the arguments of `BACKEND@VERSION`."""

_MAIN = "run"


def candidates(index: Index, words: Sequence[str], prefix: str, part: PartOfIndex) -> list[Candidate]:
    """Return what completes a word.

    Args:
        index: the index.
        words: whole words before it, without the program's name.
        prefix: the word up to the cursor, without quotes.
        part: reads another part of the index.
    """
    verbs = index["verbs"]
    found: list[Candidate] = []
    if not words:
        found += [(name, verb["doc"]) for name, verb in verbs.items()]
        found += [("--help", "what launch does"), ("--version", "the installed version")]
        if not prefix:
            return found
    named = bool(words) and words[0] in verbs
    verb = verbs[words[0]] if named else verbs[_MAIN]
    rest = list(words[1:]) if named else list(words)
    if verb.get("verbs"):
        if not rest:
            return _starting([(name, inner["doc"]) for name, inner in verb["verbs"].items()], prefix)
        verb, rest = verb["verbs"].get(rest[0], {"options": [], "positionals": []}), rest[1:]
    return _starting([*found, *_of_verb(index, verb, rest, prefix, part)], prefix)


def _starting(found: Iterable[Candidate], prefix: str) -> list[Candidate]:
    return list({text: (text, doc) for text, doc in found if text.startswith(prefix)}.values())


def _of_verb(index: Index, verb: Index, words: list[str], prefix: str, part: PartOfIndex) -> Iterator[Candidate]:
    options = {name: option for option in verb["options"] for name in option["names"]}
    before = options.get(words[-1]) if words else None
    if before is not None and before["takes"]:
        yield from _values(index, before, words, prefix, part)
        return
    if prefix.startswith("--") and "=" in prefix:
        name, _, typed = prefix.partition("=")
        if name in options and options[name]["takes"]:
            found = _values(index, options[name], words, typed, part)
            yield from ((f"{name}={text}", doc) for text, doc in found)
        return
    if prefix.startswith("-"):
        yield from ((name, option["doc"]) for name, option in options.items() if len(name) > 2 or prefix == "-")
        return
    given = [word for word in _positionals(words, options) if not word.startswith("-")]
    yield from _of_positional(index, verb, given, words, prefix, part)


def _positionals(words: Sequence[str], options: Index) -> Iterator[str]:
    """Yield words that are neither options nor their values."""
    skip = False
    for word in words:
        if not skip and not word.startswith("-"):
            yield word
        skip = not skip and word in options and bool(options[word]["takes"])


def _of_positional(
    index: Index, verb: Index, given: Sequence[str], words: Sequence[str], prefix: str, part: PartOfIndex
) -> Iterator[Candidate]:
    """Yield what completes a positional argument: of the first one that is not given yet, or that repeats."""
    kinds = verb["positionals"]
    for at, kind in enumerate(kinds):
        if at < len(given) and not kind["many"]:
            continue
        yield from _values(index, kind, words, prefix, part)
        if not kind["many"] or kind["takes"] != "override":
            return


def _values(index: Index, option: Index, words: Sequence[str], prefix: str, part: PartOfIndex) -> Iterator[Candidate]:
    """Yield the values of an option or positional by what it takes."""
    takes = option["takes"]
    if option["choices"]:
        yield from ((text, "") for text in option["choices"])
    elif takes == "override":
        yield from override_candidates(index, words, prefix, part)
        if "file" in option.get("also", ""):
            yield from files.paths(prefix)
    elif takes == "file":
        yield from files.paths(prefix)
    elif takes == "dir":
        yield from files.paths(prefix, folders=True)
    elif takes == "run":
        yield from ((name, "") for name in files.runs())
    elif takes == "backend":
        yield from _last_of(prefix, [(name, each["title"]) for name, each in index["backends"].items()])
    elif takes == "version":
        yield from _versions(index, words)
    elif takes == "name":
        yield from _names(index, prefix, part)


def _last_of(prefix: str, found: Iterable[Candidate]) -> Iterator[Candidate]:
    """Yield the last value of a list with commas between them."""
    before = prefix[: prefix.rfind(",") + 1]
    yield from ((before + text, doc) for text, doc in found if f"{text}," not in f",{before}")


def _versions(index: Index, words: Sequence[str]) -> Iterator[Candidate]:
    named = [index["backends"][word] for word in words if word in index["backends"]]
    for backend in named or index["backends"].values():
        for version in backend["versions"]:
            yield version, backend["title"] + (", default" if version == backend["default"] else "")


def _names(index: Index, prefix: str, part: PartOfIndex) -> Iterator[Candidate]:
    yield from ((path, field["doc"]) for path, field in index["fields"].items())
    if prefix[:1].isupper():
        yield from part("rules")["rules"].items()
