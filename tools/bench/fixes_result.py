"""What became of one broken job."""

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class Result:
    """One broken job and what became of it.

    Attributes:
        classes: mistakes that were made.
        errors: rules that refused the job.
        fixes: overrides that `--fix` wrote; `answers` those that the user added.
        accepted: the job passes with them.
        left: rules that still refuse it.
        trains: the fixes change training.
        layout: some layout passes with the same training, by brute force.
        fewest: fields changed at least, by brute force; None: none found.
        real: message of the real validator; "": accepted; None: not asked.
    """

    name: str
    backend: str
    classes: tuple[str, ...]
    words: tuple[str, ...]
    is_script: bool
    errors: tuple[str, ...]
    fixes: tuple[str, ...]
    answers: tuple[str, ...]
    accepted: bool
    left: tuple[str, ...]
    trains: bool
    layout: bool
    fewest: int | None
    seconds: float
    real: str | None = None

    @property
    def solvable(self) -> bool:
        """Whether some solution is known."""
        return self.accepted or self.fewest is not None
