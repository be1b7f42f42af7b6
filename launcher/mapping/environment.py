"""Environment variables as data: which ones a backend gets, under which conditions, their meaning and source."""

from collections.abc import Iterable, Mapping

from launcher.job import Job, value_at
from launcher.mapping.native import NativeArgs
from launcher.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """An environment variable; one of a backend's table is set where its conditions hold, others are only explained.

    Attributes:
        value: value to set; None: computed from `field`, or not set.
        field: canonical field whose number, times `scale`, is the value; where it is None the variable is not set.
        devices: device types for which it is set; empty: all.
        nodes: minimum number of nodes for which it is set.
        argument: native argument that must be written; "": none.
        meaning: what it does; "": see the general table.
        source: what sets or documents it.
    """

    name: str
    value: str | None = None
    field: str = ""
    scale: int = 1
    devices: tuple[str, ...] = ()
    nodes: int = 1
    argument: str = ""
    meaning: str = ""
    source: str

    @property
    def when(self) -> str:
        """The conditions as text; "" where it is always set."""
        conditions = []
        if self.devices:
            conditions.append(f"on {' or '.join(self.devices)}")
        if self.nodes > 1:
            conditions.append(f"with {self.nodes} nodes or more")
        if self.argument:
            conditions.append(f"with {self.argument}")
        if self.field:
            conditions.append(f"with {self.field}")
        return ", ".join(conditions)

    @property
    def text(self) -> str:
        """The value as text."""
        if self.value is not None:
            return self.value
        return f"{self.field} x {self.scale}" if self.scale != 1 else self.field

    def in_job(self, job: Job, native: NativeArgs) -> str | None:
        """Return the value that a job gets; None if its conditions do not hold."""
        if self.devices and job.hardware.device not in self.devices:
            return None
        if job.cluster.nodes < self.nodes or (self.argument and native.get(self.argument) in (None, False)):
            return None
        if not self.field:
            return self.value
        number = value_at(job, self.field)
        return None if number is None else str(round(number * self.scale))


def environment(variables: Iterable[Variable], job: Job, native: NativeArgs) -> dict[str, str]:
    """Return a job's variables from a backend's table; later rows take precedence, and `backend.env` over all."""
    found = {each.name: value for each in variables if (value := each.in_job(job, native)) is not None}
    return {**found, **job.backend.env}


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """A variable of a plan: its value and origin.

    Attributes:
        origin: `user` (backend.env), `backend` (its table), or `launcher`.
        where: the override or file of a user's value; the conditions of a backend's variable.
    """

    name: str
    value: str
    origin: str
    where: str = ""
    meaning: str = ""
    source: str = ""


def explained(
    env: Mapping[str, str],
    variables: Iterable[Variable],
    job: Job,
    native: NativeArgs,
    known: Mapping[str, Variable],
) -> list[Explained]:
    """Return the variables of a node with the origin of each.

    Args:
        known: the general table, for meanings.
    """
    rows = {each.name: each for each in variables if each.in_job(job, native) is not None}
    found = []
    for name, value in env.items():
        row, general = rows.get(name), known.get(name)
        meaning = (row.meaning if row else "") or (general.meaning if general else "")
        if name in job.backend.env:
            where = job.origin(f"backend.env.{name}").where or job.origin("backend.env").where
            found.append(Explained(name=name, value=value, origin="user", where=where, meaning=meaning))
        elif row is not None and row.in_job(job, native) == value:
            found.append(
                Explained(name=name, value=value, origin="backend", where=row.when, meaning=meaning, source=row.source)
            )
        else:
            source = general.source if general else ""
            found.append(Explained(name=name, value=value, origin="launcher", meaning=meaning, source=source))
    return found
