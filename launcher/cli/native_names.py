"""Native arguments typed as overrides (`max_epochs=3`): suggests the canonical field, or `backend.args`."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from launcher.compose.errors import NAME, ComposeError, Mistake
from launcher.job import override_text

if TYPE_CHECKING:
    from launcher.mapping.backend import Backend

# Longer values and YAML anchors are not parsed: expanding them is too costly for a suggestion.
_LONGEST = 200


def with_native_names(error: ComposeError) -> list[Mistake]:
    """Return the mistakes of a command line; unknown fields that are native arguments get equivalent overrides."""
    return [_suggested(mistake, error) for mistake in error.mistakes]


def _suggested(mistake: Mistake, error: ComposeError) -> Mistake:
    if mistake.rule != NAME or mistake.where not in error.words:
        return mistake
    return replace(mistake, works=tuple(_offers(mistake, error)) or mistake.works)


def _offers(mistake: Mistake, error: ComposeError) -> Iterator[str]:
    """Yield overrides equivalent to a native argument, of the chosen backend first; each composes."""
    from launcher.compose import composes_with

    name, _, text = mistake.where.lstrip("+").partition("=")
    wrong = {each.where for each in error.mistakes}
    others = [each for each in error.words if each not in wrong]
    for number, backend in enumerate(_backends(error.words)):
        found = _fields_of(name, text, backend)
        if found is None:
            continue
        offers = [each for each in found if composes_with(each, others)]
        passed = f"backend.args.{name}={text}"
        if not offers and number == 0 and composes_with(passed, others):
            offers = [passed]
        yield from offers
        return


def _backends(words: Sequence[str]) -> "list[Backend]":
    from launcher.mapping.backend import backend_names, get_backend

    known = backend_names()
    chosen = [word.partition("=")[2] for word in words if word.startswith("backend=")]
    return [get_backend(name) for name in dict.fromkeys([*(each for each in chosen if each in known), *known])]


def _fields_of(name: str, text: str, backend: "Backend") -> list[str] | None:
    """Return overrides equivalent to a backend's argument; None: it has no such argument, or refuses this value."""
    import yaml

    from launcher.mapping.engine import read_argument

    version = backend.default_version
    catalogue = backend.catalogue(version)
    argument = catalogue.get(name) or catalogue.get(name.replace("_", "-")) or catalogue.by_dest(name)
    if argument is None or not text or len(text) > _LONGEST or "&" in text:
        return None
    try:
        value: Any = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):  # ValueError: an invalid date
        return None
    if catalogue.check(argument.name, value) is not None:
        return None
    read = read_argument(argument.name, value, backend, version)
    # Other fields of a row follow from the first one, as evaluation.epochs does from schedule.epochs.
    return [f"{path}={override_text(each)}" for path, each in read.items()][:1]
