"""How a backend computes a quantity that not all backends compute in the same way."""

from collections.abc import Mapping

from launcher.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Computation:
    """The way that some versions of backends compute a quantity; the first row that holds for a job counts.

    Attributes:
        topic: key of `launcher.rules.computations.TOPICS`.
        way: one of the topic's ways.
        rule: id of a rule of the backend instead, which holds for the jobs that are computed so and says how.
        versions: first and last version by backend.
        when: native arguments and fields of the jobs that are computed so, in the syntax of rules; "": all.
        source: upstream file:line.
    """

    topic: str
    way: str = ""
    rule: str = ""
    versions: Mapping[str, tuple[str | None, str | None]]
    when: str = ""
    source: str = ""
