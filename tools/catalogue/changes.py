"""What is new, gone, renamed or otherwise declared in a version, and which fields, rows and rules that touches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from launcher.catalogue.catalogue import Argument, Catalogue
from launcher.mapping.backend import Backend
from launcher.mapping.engine import fields_of_flags
from launcher.mapping.renames import renames_of
from launcher.rules.engine import load
from launcher.rules.registry import RULES
from launcher.rules.rule_index import flags_of

# What a user or a rule notices of an argument's declaration.
_COMPARED = ("type", "nargs", "choices", "action", "required", "optional_value", "nullable", "commands")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One argument that two versions do not have alike.

    Attributes:
        name: the argument.
        what: new, gone, renamed, default, or declared.
        says: the difference as text.
    """

    name: str
    what: str
    says: str


def changes(old: Catalogue, new: Catalogue, renames: Mapping[str, Mapping[str, Any]]) -> list[Change]:
    """Return the differences from an older catalogue to a newer one, by kind and name."""
    before = {each.name: each for each in old.arguments}
    after = {each.name: each for each in new.arguments}
    found = [Change(name=name, what="new", says="") for name in sorted(after.keys() - before.keys())]
    for name in sorted(before.keys() - after.keys()):
        row = renames.get(name.replace("-", "_"))
        became = "" if row is None else str(row["new"] or "nothing takes its place")
        found.append(Change(name=name, what="renamed" if row and row["new"] else "gone", says=became))
    for name in sorted(before.keys() & after.keys()):
        found += _compared(before[name], after[name])
    return found


def _compared(old: Argument, new: Argument) -> Iterator[Change]:
    if defaults(old) != defaults(new):
        yield Change(name=new.name, what="default", says=f"{_default(old)} -> {_default(new)}")
    different = [key for key in _COMPARED if getattr(old, key) != getattr(new, key)]
    if different:
        said = "; ".join(f"{key} {getattr(old, key)!r} -> {getattr(new, key)!r}" for key in different)
        yield Change(name=new.name, what="declared", says=said)


def defaults(argument: Argument) -> tuple[Any, ...]:
    """Return what decides the value of an argument that is not given."""
    return argument.has_default, argument.default, argument.default_from, dict(argument.command_defaults)


def _default(argument: Argument) -> str:
    shown = repr(argument.default) if argument.has_default else argument.default_from or "none"
    return shown + "".join(f", {name}: {value!r}" for name, value in argument.command_defaults.items())


def same_arguments(one: Catalogue, other: Catalogue) -> bool:
    """Return whether two versions accept the same, with the same defaults; help and source lines do not count."""
    return not changes(one, other, {}) and [a.aliases for a in one.arguments] == [a.aliases for a in other.arguments]


def report(backend: Backend, old: str, new: str) -> Iterator[str]:
    """Yield the differences between two versions as lines, each with the fields and the rules that it touches."""
    load(backend.rules)
    found = changes(backend.catalogue(old), backend.catalogue(new), renames_of(backend.name))
    yield f"{new} against {old}: {_counts(found)}"
    for each in found:
        fields = {
            *fields_of_flags(backend.name, old).get(each.name, ()),
            *fields_of_flags(backend.name, new).get(each.name, ()),
        }
        rules = [
            rule.id
            for rule in RULES.values()
            if backend.name in rule.backends and each.name in flags_of(rule) and rule.applies_to(backend.name, new)
        ]
        touched = [*(f"row {path}" for path in sorted(fields)), *(f"rule {rule}" for rule in sorted(rules))]
        yield f"  {each.what:8} {each.name}{f': {each.says}' if each.says else ''}" + (
            f"   [{', '.join(touched)}]" if touched else ""
        )


def _counts(found: list[Change]) -> str:
    kinds = {
        "new": "new",
        "gone": "gone",
        "renamed": "renamed",
        "default": "other defaults",
        "declared": "declared otherwise",
    }
    counts = [f"{sum(each.what == kind for each in found)} {name}" for kind, name in kinds.items()]
    return ", ".join(each for each in counts if not each.startswith("0 ")) or "no difference"
