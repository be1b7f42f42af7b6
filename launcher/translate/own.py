"""What a backend's own arguments do, as data: those without a canonical field, for whoever goes to another backend."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from launcher.job import Job, Value
from launcher.translate.catalogue import Argument, Catalogue

MODEL, TRAINING, SPEED, MEMORY, OUTPUT, START, NOTHING = (
    "model",
    "training",
    "speed",
    "memory",
    "output",
    "start",
    "nothing",
)
EFFECTS: Mapping[str, str] = {
    MODEL: "without it the model or its loss is another one",
    TRAINING: "without it training goes otherwise",
    SPEED: "speed only",
    MEMORY: "memory only",
    OUTPUT: "logs, checkpoints and evaluation only",
    START: "how processes start and talk only",
    NOTHING: "no effect on training",
}
"""What leaving an argument out changes, the gravest first."""

USUAL = {
    MODEL: "the model or its loss is another one",
    TRAINING: "training goes on without it",
    SPEED: "steps may take longer",
    MEMORY: "it may need more memory",
    OUTPUT: "that is not written",
    START: "processes start and talk without it",
    NOTHING: "nothing is needed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    """One argument of a backend without a canonical field, or several of one kind.

    Attributes:
        names: arguments, exactly or as patterns with `*`; `-` and `_` are the same.
        groups: groups or declaring classes of the catalogue; all of their arguments that no other row names.
        does: what it does, a phrase that follows the argument's name.
        effect: what leaving it out changes; one of `EFFECTS`.
        why: why other backends do not have it.
        instead: overrides that come nearest, the best first (`{value}`: the argument's); the first one that the other
            backend can express counts.
        without: what follows where none of these exists there; empty: as usual for the effect.
        given: the row holds for these values only; empty: for every value.
        neutral: values that change nothing, besides the argument's own default.
        there: values that another backend, or every one on a kind of device, has anyway.
        read: whether a job reads it at all; None: every job.
        alone: an argument of the same name elsewhere means something else.
        holds, becomes: where these fields have these values, the argument says these other values, on every backend.
        nearly: how what it says differs from what those fields say; empty: not at all.
        source: where that is known from.
    """

    names: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    does: str
    effect: str
    why: str
    instead: tuple[str, ...] = ()
    without: str = ""
    given: tuple[Value, ...] = ()
    neutral: tuple[Value, ...] = ()
    there: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    read: Callable[[Job], bool] | None = None
    alone: bool = False
    holds: Mapping[str, Value] = field(default_factory=dict)
    becomes: Mapping[str, Value] = field(default_factory=dict)
    nearly: str = ""
    source: str = ""

    @property
    def consequence(self) -> str:
        """What follows where nothing takes its place."""
        return self.without or USUAL[self.effect]


def own(names: str, does: str, effect: str, why: str, *instead: str, **more: object) -> Own:
    """Return a row for arguments named in one text, separated by spaces."""
    return Own(names=tuple(names.split()), does=does, effect=effect, why=why, instead=instead, **more)  # type: ignore[arg-type]


def kind(groups: tuple[str, ...], does: str, effect: str, why: str, *instead: str, **more: object) -> Own:
    """Return a row for all arguments of groups of the catalogue that no other row names."""
    return Own(groups=groups, does=does, effect=effect, why=why, instead=instead, **more)  # type: ignore[arg-type]


class Owns:
    """A backend's table, for looking arguments up: by name, then by pattern, then by group; the first row counts."""

    def __init__(self, rows: Iterable[Own], phrases: Mapping[str, str] | None = None) -> None:
        self.rows = tuple(rows)
        self._phrases = {plain(name): phrase for name, phrase in (phrases or {}).items()}
        self._names: dict[str, list[Own]] = {}
        self._patterns: list[tuple[str, Own]] = []
        self._groups: dict[str, Own] = {}
        for row in self.rows:
            for name in row.names:
                if "*" in name:
                    self._patterns.append((plain(name), row))
                else:
                    self._names.setdefault(plain(name), []).append(row)
            for group in row.groups:
                self._groups.setdefault(group, row)

    def named(self, name: str, job: Job | None = None, value: Value = None) -> Own | None:
        """Return the row that names an argument; of several the first whose conditions the job and value meet."""
        for row in self._names.get(plain(name), ()):
            if job is None or _meets(row, job, value):
                return row
        return None

    def of(
        self, name: str, argument: Argument | None = None, job: Job | None = None, value: Value = None
    ) -> Own | None:
        """Return the row of an argument; None: the table does not know it."""
        found = self._row(name, argument, job, value)
        names = (name, *((argument.name,) if argument is not None else ()))
        phrase = next((self._phrases[plain(each)] for each in names if plain(each) in self._phrases), "")
        return replace(found, does=phrase) if found is not None and phrase else found

    def _row(self, name: str, argument: Argument | None, job: Job | None, value: Value) -> Own | None:
        found = self.named(name, job, value) or (
            self.named(argument.name, job, value) if argument is not None else None
        )
        if found is not None:
            return found
        for pattern, row in self._patterns:
            if _fits(plain(name), pattern) and (job is None or _meets(row, job, value)):
                return row
        if argument is None:
            return None
        return self._groups.get(argument.group) or self._groups.get(argument.owner)


def _fits(name: str, pattern: str) -> bool:
    start, star, rest = pattern.partition("*")
    return name.startswith(start) if star and not rest else fnmatchcase(name, pattern)


def _meets(row: Own, job: Job, value: Value) -> bool:
    from launcher.job import value_at

    if row.given and value not in row.given:
        return False
    if all(value_at(job, path) == wanted for path, wanted in row.holds.items()):
        return True
    # Where its fields say already what the argument becomes, it has become that.
    return bool(row.becomes) and all(value_at(job, path) == value for path, value in row.becomes.items())


def plain(name: str) -> str:
    """Return a name as tables compare it."""
    return name.lstrip("-").replace("-", "_").lower()


def unknown(catalogue: Catalogue, own: Owns) -> list[Argument]:
    """Return the arguments of a catalogue that a table does not know."""
    return [argument for argument in catalogue.arguments if own.of(argument.name, argument) is None]
