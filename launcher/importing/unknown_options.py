"""Options that no known version of a backend has: one message for all that a fork may have added."""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from launcher.catalogue.user import OUTSIDE, forks
from launcher.catalogue.versions import FORK
from launcher.importing.notes import Note
from launcher.job import Value, override_text
from launcher.mapping.backend import Backend
from launcher.mapping.forks import loaded
from launcher.mapping.renames import RenamedArg
from launcher.records import dataclass

_SOURCE = "--source DIR: the checkout that the script starts; they become typed arguments of its own version"
_PARTIAL = "--partial: the rest; they stay in backend.args as they are, and launch check refuses them"
_MOST = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownOption:
    """An option that a version does not have.

    Attributes:
        message: why, and what is known of it.
        found: what the versions and the other backends know of its name.
    """

    option: str
    value: Value
    message: str
    where: str
    found: RenamedArg

    @property
    def is_spelling(self) -> bool:
        """Whether it is probably a misspelt argument: a name like it exists and nothing else is known of it."""
        return bool(self.found.works) and not self.found.message


def unknown_notes(unknown: Sequence[UnknownOption], backend: Backend, version: str) -> Iterator[Note]:
    """Yield the errors on unknown options: one for each that is misspelt, one for all others together."""
    others = [each for each in unknown if not each.is_spelling]
    if backend.parser_source is None or not others:
        yield from (Note(message=each.message, where=each.where, works=each.found.works) for each in unknown)
        return
    yield from (
        Note(message=each.message, where=each.where, works=each.found.works) for each in unknown if each.is_spelling
    )
    outside = backend.catalogue(version).source.get(OUTSIDE, "")
    whose = f"they come from {outside}, which is not in the checkout" if outside else "a fork of it may have them"
    works = (*_read_again(backend, version), _PARTIAL) if FORK in version else (_SOURCE, _PARTIAL)
    if len(others) == 1:
        only = others[0]
        message = f"{only.message}; {whose}" if outside else only.message
        yield Note(message=message, where=only.where, works=(*only.found.works, *works))
        return
    head = f"{len(others)} options are not arguments of {backend.title} {version}"
    if outside or FORK not in version:
        head = f"{head}; {whose}"
    lines = [_line(each) for each in others[:_MOST]]
    if len(others) > _MOST:
        lines.append(f"… and {len(others) - _MOST} more")
    yield Note(message=head, where=others[0].where, works=works, details=tuple(lines))


def _read_again(backend: Backend, version: str) -> Iterator[str]:
    """Yield the command that reads a fork's checkout again, if its parser's folder changed since it was read."""
    for fork in forks(backend.name):
        content = loaded(fork) if fork.version == version else None
        if content is None or not content.details.parser:
            continue
        root = Path(content.details.checkout)
        folder = (root / content.details.parser.partition(":")[0]).parent
        try:
            read, changed = fork.file.stat().st_mtime, max(each.stat().st_mtime for each in folder.glob("*.py"))
        except (OSError, ValueError):
            continue
        if changed > read:
            command = shlex.join(("launch", "catalogue", "add", str(root), "--name", fork.name))
            yield f"{command}: the checkout changed since it was read"


def _line(each: UnknownOption) -> str:
    value = "" if each.value is True else f" {override_text(each.value)}"
    known = each.found.message or "no version and no other backend has it"
    near = f"; near: {' '.join(each.found.works)}" if each.found.works else ""
    return f"--{each.option}{value}  ({each.where}): {known}{near}"
