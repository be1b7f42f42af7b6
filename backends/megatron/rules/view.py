"""Inputs of the Megatron-SWIFT rules: the effective value of each option, and the row type of a rule."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from backends.megatron import BACKEND, catalogue
from backends.megatron.launch import command
from backends.megatron.mapping.table import table
from launcher.catalogue.versions import in_range
from launcher.job import Job, Value
from launcher.mapping.engine import fields_by_flag
from launcher.mapping.native import NativeArg
from launcher.rules.registry import RULES, Check, RuleContext, Violation, rule

NAME = BACKEND.name
FOUR, THREE = "4.0", "3.99"


@cache
def _defaults(version: str, subcommand: str) -> Mapping[str, Value]:
    return {argument.name: argument.default_for(subcommand) for argument in catalogue(version).arguments}


@cache
def _fields(version: str) -> Mapping[str, tuple[str, ...]]:
    return fields_by_flag(table(version), version, first=True)


class View:
    """The options of one job: `view.packing` is the value written, else the version's default (None: no option)."""

    def __init__(self, facts: RuleContext) -> None:
        assert facts.version is not None
        self.job: Job = facts.job
        self.version: str = facts.version
        self.written: Mapping[str, NativeArg] = facts.written

    def __getattr__(self, flag: str) -> Any:
        arg = self.written.get(flag)
        return _defaults(self.version, command(self.job)).get(flag) if arg is None else arg.value

    def __getitem__(self, flag: str) -> Any:
        value = getattr(self, flag)
        return str(value).lower() if isinstance(value, bool) else value

    def given(self, flag: str) -> bool:
        """Return whether the option is written with a value."""
        return flag in self.written and self.written[flag].value is not None

    def written_number(self, flag: str) -> float | None:
        """Return a number that is written; None where the option is left to its default."""
        value = self.written[flag].value if flag in self.written else None
        return value if isinstance(value, (int, float)) else None

    @property
    def world(self) -> int:
        """Return the number of processes."""
        return self.job.cluster.world_size

    @property
    def dp(self) -> int | None:
        """Return the data parallel size; None where the sizes do not divide."""
        rest = self.tensor_model_parallel_size * self.pipeline_model_parallel_size * self.context_parallel_size
        return self.world // rest if rest and self.world % rest == 0 else None

    @property
    def vpp(self) -> int:
        """Return the chunks per stage where an option sets them, else 1."""
        names = ("virtual_pipeline_model_parallel_size", "num_virtual_stages_per_pipeline_rank")
        return next((getattr(self, name) for name in names if getattr(self, name) is not None), None) or 1

    @property
    def lora(self) -> bool:
        """Return whether adapters are trained instead of all weights."""
        if not in_range(self.version, "3.7", None):  # the option exists there, but all weights are trained
            return False
        return (self.tuner_type or self.train_type or "full") != "full" or bool(self.adapters)

    def many(self, flag: str) -> tuple[Any, ...]:
        """Return the values of an option that takes one or several."""
        value = getattr(self, flag)
        if value is None:
            return ()
        return tuple(value) if isinstance(value, (list, tuple)) else (value,)


_last: tuple[RuleContext, View] | None = None


def view_of(facts: RuleContext) -> View:
    """Return the view of a rule context; rules of one job share it."""
    global _last
    last = _last
    if last is None or last[0] is not facts:
        last = _last = (facts, View(facts))
    return last[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class SwiftRule:
    """One rule about options.

    Attributes:
        id, doc, source, severity, since, until, stricter: as in `launcher.rules.registry.Rule`.
        flags: options concerned; their canonical fields follow from the mapping table.
        when: whether the job violates the rule.
        say: message; `{option}` stands for the option's value; or a function that returns it.
        fields: canonical fields, where they do not follow from the flags.
    """

    id: str
    doc: str
    source: str
    flags: tuple[str, ...]
    when: Callable[[View], Any]
    say: str | Callable[[View], str]
    severity: str = "error"
    since: str | None = None
    until: str | None = None
    stricter: bool = False
    fields: tuple[str, ...] = ()


def declare(*rules: SwiftRule) -> None:
    """Declare rows as rules."""
    for row in rules:
        rule(
            row.id,
            source=row.source,
            severity=row.severity,
            backends=(NAME,),
            since=row.since,
            until=row.until,
            stricter=row.stricter,
        )(_check(row))


def _check(row: SwiftRule) -> Check:
    def check(facts: RuleContext) -> Iterator[Violation]:
        if facts.native is None or facts.version is None:
            return
        view = view_of(facts)
        try:
            broken = row.when(view)
        except TypeError:  # a value of the wrong type; reported by the check against the catalogue
            return
        if broken:
            yield Violation(message=_message(row, view), fields=fields_of(row, facts.version), flags=row.flags)

    check.__doc__ = row.doc
    return check


def _message(row: SwiftRule, view: View) -> str:
    return row.say(view) if callable(row.say) else row.say.format_map(view)


def fields_of(row: SwiftRule, version: str) -> tuple[str, ...]:
    """Return the canonical fields that a rule concerns in a version."""
    ties = _fields(version)
    return row.fields or tuple(dict.fromkeys(path for flag in row.flags for path in ties.get(flag, ())))


def newest(since: str | None, until: str | None) -> str:
    """Return the newest version in a range."""
    return next(version for version in BACKEND.versions if in_range(version, since, until))


__all__ = ["FOUR", "NAME", "RULES", "THREE", "SwiftRule", "View", "declare", "fields_of", "newest", "view_of"]
