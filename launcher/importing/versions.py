"""Detects the backend and version that a command line was written for."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from launcher.catalogue.catalogue import Catalogue
from launcher.importing.argv import Parsed
from launcher.job import Value
from launcher.mapping.backend import Backend
from launcher.records import dataclass

Parse = Callable[[Catalogue], Parsed]


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """How well a command line matches one version of a backend."""

    backend: Backend
    version: str
    parsed: Parsed
    default: "Match | None" = None
    """Match of the backend's default version, if this is another one."""

    @property
    def refused(self) -> tuple[str, ...]:
        """Options that this version does not accept, or not with that value."""
        wrong = self.parsed.loose | {option.lstrip("-") for option, _ in self.parsed.problems}
        return (*self.parsed.unknown, *sorted(wrong))

    @property
    def mismatches(self) -> int:
        """Number of options that this version does not accept, or not with that value."""
        wrong = self.parsed.loose | {option for option, _ in self.parsed.problems}
        return len(self.parsed.unknown) + len(wrong)


def best(backend: Backend, version: str | None, read: Parse) -> Match:
    """Return the version of a backend that accepts most of the options; of equals the default one, then the newest.

    Args:
        version: None: every known version is tried.
        read: parses the input against a catalogue.
    """
    matches = []
    default_first = sorted(backend.versions, key=lambda each: each != backend.default_version)
    for candidate in (version,) if version is not None else default_first:
        match = Match(backend=backend, version=candidate, parsed=read(backend.catalogue(candidate)))
        matches.append(match)
        if match.mismatches == 0:
            break
    found = min(matches, key=lambda match: (bool(match.parsed.foreign), match.mismatches))
    return found if found is matches[0] else replace(found, default=matches[0])


def value_of_args(args: Iterable[str]) -> Value:
    """Return the values of an unknown option as one value: True without any, text, or a tuple."""
    found = tuple(args)
    return True if not found else found[0] if len(found) == 1 else found
