"""Which rules apply, and how strictly."""

from launcher.job.option import option
from launcher.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How strictly the job is checked."""

    strict: str = option(
        "all",
        "all: Launch's own stricter rules are errors; upstream: they are warnings.",
        choices=("all", "upstream"),
    )
    disable: tuple[str, ...] = option((), "Rule ids that are not applied; named in the findings.")
