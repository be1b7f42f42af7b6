"""Rules are small pure functions with an id; this is where they are declared and found."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from launcher.job import Job
from launcher.translate.native import NativeArgs
from launcher.translate.versions import in_range


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a rule may look at: the job, and what it became on the chosen backend."""

    job: Job
    backend: str | None = None
    version: str | None = None
    native: NativeArgs | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What a rule found: one sentence with the figures, and the fields and flags it concerns."""

    message: str
    fields: tuple[str, ...]
    flags: tuple[str, ...] = ()


Check = Callable[[Facts], Iterable[Fault]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One declared rule.

    Attributes:
        id: stable name, such as `MOE-EP-EXPERTS`.
        check: facts to faults.
        severity: of its findings.
        source: upstream file:line, document section or paper.
        backends: names that it holds for; empty: all.
        since, until: versions of that backend that it holds for.
        doc: what it demands and why, one or two sentences (the function's docstring).
        stricter: not enforced by the backend; `rules.strict=upstream` lowers it to a warning.
    """

    id: str
    check: Check
    severity: str
    source: str
    backends: tuple[str, ...] = ()
    since: str | None = None
    until: str | None = None
    doc: str = ""
    stricter: bool = False
    fields: tuple[str, ...] = field(default=())

    def applies(self, facts: Facts) -> bool:
        """Tell whether the rule holds for this backend and version."""
        if not self.backends:
            return True
        if facts.backend not in self.backends:
            return False
        return facts.version is None or in_range(facts.version, self.since, self.until)


RULES: dict[str, Rule] = {}


def rule(
    id: str,
    *,
    source: str,
    severity: str = "error",
    backends: tuple[str, ...] = (),
    since: str | None = None,
    until: str | None = None,
    stricter: bool = False,
) -> Callable[[Check], Check]:
    """Declare a rule; the function's docstring is its explanation."""

    def declare(check: Check) -> Check:
        assert id not in RULES or RULES[id].check.__module__ == check.__module__, f"two rules are called {id}"
        RULES[id] = Rule(
            id=id,
            check=check,
            severity=severity,
            source=source,
            backends=backends,
            since=since,
            until=until,
            doc=" ".join((check.__doc__ or "").split()),
            stricter=stricter,
        )
        return check

    return declare


def loaded_rules() -> Iterator[Rule]:
    """Yield all rules declared so far, in order of their ids."""
    return (RULES[name] for name in sorted(RULES))
