"""Models that a backend cannot build: declared in the backend's package, used by `check` and `convert`."""

from collections.abc import Callable

from launcher.job.model import Model
from launcher.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Unbuildable:
    """A kind of model for which a backend has no code.

    Attributes:
        id: id of the rule with which `check` reports it; empty: the mapping table reports it, from the same facts.
        doc: what is not built, one sentence.
        when: whether a model is of that kind.
        describe: message for a model of that kind: what the backend does with it.
        fields: canonical fields that determine the kind.
        source: upstream file:line.
        works: overrides with which the model may be built.
        covers: fields that the mapping table reports for the same reason, too.
        since, until: versions of the backend.
    """

    id: str = ""
    doc: str
    when: Callable[[Model], bool]
    describe: Callable[[Model], str]
    fields: tuple[str, ...]
    source: str
    works: tuple[str, ...] = ()
    covers: tuple[str, ...] = ()
    since: str | None = None
    until: str | None = None
