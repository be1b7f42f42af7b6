"""The kinds of training that are measured, each with its jobs and the text beside its table."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.parity import fine_tuning, lora, preference, pretraining
from tools.parity.case import Case


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One table of the page.

    Attributes:
        cases: jobs by name; a name is in one kind.
        before, after: names of text files beside this one; "": none.
    """

    cases: Mapping[str, Case]
    before: str = ""
    after: str = ""

    @property
    def stem(self) -> str:
        """Name of the table, by which the page's translation refers to it."""
        return Path(self.before or self.after).stem

    def text(self, name: str) -> list[str]:
        """Return the lines of a text file."""
        return [Path(__file__).with_name(name).read_text(encoding="utf-8").rstrip(), ""] if name else []


KINDS: Mapping[str, Kind] = {
    "Pre-training": Kind(cases=pretraining.CASES, after="pretraining.md"),
    "Supervised fine-tuning": Kind(cases=fine_tuning.CASES, before="fine_tuning.md"),
    "LoRA": Kind(cases=lora.CASES, before="lora.md"),
    "Direct preference optimisation": Kind(cases=preference.CASES, before="preference.md"),
}
"""Kind of training, as the page names it."""


def case_of(name: str) -> Case:
    """Return a job by its name."""
    return next(kind.cases[name] for kind in KINDS.values() if name in kind.cases)


def names() -> list[str]:
    """Return the names of all jobs, in the order of the page."""
    return [name for kind in KINDS.values() for name in kind.cases]
