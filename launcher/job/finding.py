"""Findings of rules: one record for errors, warnings and silent changes."""

import re
import shlex
from collections.abc import Mapping
from typing import Any, Self

from launcher.notebook import Shown
from launcher.records import dataclass

# What a shell splits words at or expands; brackets are left to it, as they match files only where such are.
_SPLIT, _QUOTE = re.compile(r"[\s;&|<>()$`]|\{[^}]*,"), re.compile(r"[\"']")
# Between overrides of one text: a value may have blanks of its own.
_BETWEEN = re.compile(r" (?=[+~]{0,2}[A-Za-z_][\w.@/\-]*=)")
PLACEHOLDER = "…"
"""Stands in an override for a value that only the user knows."""
SEVERITIES = ("error", "warning", "change")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """Overrides that together resolve the finding without causing another.

    Attributes:
        affects_training: they change what is learned, not only how it runs.
    """

    overrides: tuple[str, ...]
    affects_training: bool = False

    @classmethod
    def from_text(cls, text: str, *, affects_training: bool = False) -> Self:
        """Return the fix of a text as `str` gives it."""
        return cls(overrides=tuple(_BETWEEN.split(text)), affects_training=affects_training)

    def __str__(self) -> str:
        return " ".join(self.overrides)

    @property
    def shown(self) -> str:
        """The overrides as a shell takes them, with their effect on training."""
        words = " ".join(_quoted(each) for each in self.overrides)
        return f"{words} (changes training)" if self.affects_training else words


def _quoted(override: str) -> str:
    """Return an override in quotes if a shell would split or expand it, and it has none; options are words already."""
    if override.startswith("--"):
        return override
    return shlex.quote(override) if _SPLIT.search(override) and not _QUOTE.search(override) else override


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding(Shown):
    """One finding about a job.

    Attributes:
        rule: id of the rule.
        severity: `error` (refused), `warning`, or `change` (the backend, or the launcher for it, alters a value).
        message: what is wrong and why, with the figures, in one sentence.
        fields: canonical paths concerned.
        flags: native arguments concerned.
        fixes: nearest changes that work, at most three.
        asks: overrides with a placeholder (N, X, NAME, …), for values that only the user knows.
        source: upstream file:line, document section or paper that the rule is based on.
    """

    rule: str
    severity: str
    message: str
    fields: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    fixes: tuple[Fix, ...] = ()
    asks: tuple[str, ...] = ()
    source: str = ""

    @property
    def not_offered(self) -> str:
        """What is said where an error has no offer: whose the values are; "": it has one, or names no field."""
        if self.severity != "error" or self.fixes or self.asks or not self.fields:
            return ""
        # The section of a backend's arguments is named where no field has their meaning.
        named = tuple(path for path in self.fields if path != "backend.args") or self.flags or self.fields
        return f"no other value is offered: {', '.join(named)} {'are' if len(named) > 1 else 'is'} yours to choose"

    def as_tree(self) -> dict[str, Any]:
        """Return the finding as plain data for JSON."""
        return {
            "rule": self.rule,
            "severity": self.severity,
            "message": self.message,
            "fields": list(self.fields),
            "flags": list(self.flags),
            "fix": [str(fix) for fix in self.fixes],
            "affects_training": [str(fix) for fix in self.fixes if fix.affects_training],
            "ask": list(self.asks),
            "source": self.source,
        }

    @classmethod
    def from_tree(cls, tree: Mapping[str, Any]) -> Self:
        """Return the finding of which `as_tree` gave a tree."""
        training = tree["affects_training"]
        return cls(
            rule=tree["rule"],
            severity=tree["severity"],
            message=tree["message"],
            fields=tuple(tree["fields"]),
            flags=tuple(tree["flags"]),
            fixes=tuple(Fix.from_text(fix, affects_training=fix in training) for fix in tree["fix"]),
            asks=tuple(tree["ask"]),
            source=tree["source"],
        )


class Findings(list[Finding], Shown):
    """Findings about one job, errors first."""

    @property
    def ok(self) -> bool:
        """Whether there is no error among them: the job would be started."""
        return all(finding.severity != "error" for finding in self)
