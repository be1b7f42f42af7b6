"""Native arguments without a canonical field, as data: what each does, and what to use on another backend."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from launcher.job import Job, Value

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
class NativeOnlyArg:
    """What is known of one argument of a backend without a canonical field, or of several of one kind.

    A row says whole answers (`does`, `effect`, `why` and what follows from them) or single facts: what one argument of
    a kind does, or why some have no field. Facts that it leaves out are those of the next row that names the argument;
    see `launcher.mapping.native_only_index`.

    Attributes:
        names: arguments, exactly or as patterns with `*`; `-` and `_` are the same.
        groups: groups or declaring classes of the catalogue; all of their arguments that no other row names.
        does: what it does, a phrase that follows the argument's name.
        effect: what leaving it out changes; one of `EFFECTS`.
        why: why other backends do not have it.
        no_field: why it has no canonical field though other backends have its name: a sentence for the user.
        refused_for: the argument that took its place, where its own parser refuses it.
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
        source: where that is known from; of `no_field`, upstream `file:line @version`.
    """

    names: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    does: str = ""
    effect: str = ""
    why: str = ""
    no_field: str = ""
    refused_for: str = ""
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


def own(names: str, does: str = "", effect: str = "", why: str = "", *instead: str, **more: object) -> NativeOnlyArg:
    """Return a row for arguments named in one text, separated by spaces."""
    return NativeOnlyArg(names=tuple(names.split()), does=does, effect=effect, why=why, instead=instead, **more)  # type: ignore[arg-type]


def kind(groups: tuple[str, ...], does: str, effect: str, why: str, *instead: str, **more: object) -> NativeOnlyArg:
    """Return a row for all arguments of groups of the catalogue that no other row names."""
    return NativeOnlyArg(groups=groups, does=does, effect=effect, why=why, instead=instead, **more)  # type: ignore[arg-type]


def each(phrases: Mapping[str, str]) -> tuple[NativeOnlyArg, ...]:
    """Return rows that say what single arguments do, of which other rows say the rest."""
    return tuple(NativeOnlyArg(names=(name,), does=does) for name, does in phrases.items())
