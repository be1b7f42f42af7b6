"""Native arguments without a canonical field, as data: what each does, and what to use on another backend."""

from collections.abc import Callable, Mapping
from dataclasses import field

from launcher.job import Job, Value
from launcher.records import dataclass

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
    MODEL: "changes the model or its loss",
    TRAINING: "changes training",
    SPEED: "changes speed only",
    MEMORY: "changes memory only",
    OUTPUT: "changes logs, checkpoints and evaluation only",
    START: "changes how processes start and communicate only",
    NOTHING: "has no effect on training",
}
"""What dropping an argument changes, the most severe first."""

USUAL = {
    MODEL: "the model or its loss changes",
    TRAINING: "training continues without it",
    SPEED: "steps may take longer",
    MEMORY: "it may need more memory",
    OUTPUT: "this output is not written",
    START: "processes start and communicate without it",
    NOTHING: "no action is needed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeOnlyArg:
    """Description of a backend's argument without a canonical field, or of a group of such arguments.

    A row is complete (`does`, `effect`, `why` and their consequences) or partial: what one argument of a group does,
    or why some have no field. Attributes that it omits are taken from the next row that names the argument; see
    `launcher.mapping.native_only_index`.

    Attributes:
        names: arguments, exactly or as patterns with `*`; `-` and `_` are the same.
        groups: groups or declaring classes of the catalogue; covers their arguments that no other row names.
        does: what it does, a phrase that follows the argument's name.
        effect: what dropping it changes; one of `EFFECTS`.
        why: why other backends do not have it.
        no_field: why it has no canonical field though other backends have its name: a sentence for the user.
        refused_for: the argument that replaced it, where its own parser refuses it.
        instead: nearest equivalent overrides, the best first (`{value}`: the argument's; `{vocabulary}`: the size of
            a vocabulary of this argument); the first one that the other backend can express is preferred.
        without: the consequence where none of these exists there; empty: as usual for the effect.
        given: the row holds for these values only; empty: for every value.
        neutral: values that change nothing, besides the argument's own default.
        read: whether a job reads it at all; None: every job.
        unrelated: an argument of the same name in another backend has a different meaning.
        holds, becomes: where the fields of `holds` have these values, the argument is equivalent to the fields of
            `becomes`, on every backend.
        nearly: how the argument differs from the fields of `becomes`; empty: not at all.
        source: source of these facts; of `no_field`, upstream `file:line @version`.
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
    read: Callable[[Job], bool] | None = None
    unrelated: bool = False
    holds: Mapping[str, Value] = field(default_factory=dict)
    becomes: Mapping[str, Value] = field(default_factory=dict)
    nearly: str = ""
    source: str = ""

    @property
    def consequence(self) -> str:
        """The consequence where there is no substitute."""
        return self.without or USUAL[self.effect]


def row(names: str, does: str = "", effect: str = "", why: str = "", *instead: str, **more: object) -> NativeOnlyArg:
    """Return a row for arguments given as one string of names separated by spaces."""
    return NativeOnlyArg(names=tuple(names.split()), does=does, effect=effect, why=why, instead=instead, **more)  # type: ignore[arg-type]


def group_row(
    groups: tuple[str, ...], does: str, effect: str, why: str, *instead: str, **more: object
) -> NativeOnlyArg:
    """Return a row for all arguments of groups of the catalogue that no other row names."""
    return NativeOnlyArg(groups=groups, does=does, effect=effect, why=why, instead=instead, **more)  # type: ignore[arg-type]


def single_rows(phrases: Mapping[str, str]) -> tuple[NativeOnlyArg, ...]:
    """Return partial rows that describe what single arguments do; other rows give the rest."""
    return tuple(NativeOnlyArg(names=(name,), does=does) for name, does in phrases.items())
