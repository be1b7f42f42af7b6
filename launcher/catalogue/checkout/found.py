"""What a parser's source does: arguments added, and changed after they were added."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from launcher.catalogue.checkout.values import Value
from launcher.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call of `add_argument` (or a field of a dataclass that becomes one).

    Attributes:
        options: option strings, dashes included.
        kwargs: keyword arguments.
        texts: source of each keyword argument.
        group: title of the argument group.
        owner: function or class that declares it.
        where: `file:line`.
    """

    options: tuple[str, ...]
    kwargs: Mapping[str, Value]
    texts: Mapping[str, str] = field(default_factory=dict)
    group: str = ""
    owner: str = ""
    where: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of an argument that was added before: its new default, or a further choice."""

    option: str
    what: str
    value: Value
    where: str = ""


@dataclass(kw_only=True, eq=False)
class Found:
    """What a parser's source does, in order.

    Attributes:
        events: arguments added and changed.
        unread: `file:line` and source of calls whose arguments the source does not determine.
        outside: functions outside of the checkout that were given the parser, and where.
        providers: functions that entry scripts add their own arguments with.
        extended: function outside of the checkout that makes the parser which they extend; empty: none.
    """

    events: list[Call | Change] = field(default_factory=list)
    unread: dict[str, str] = field(default_factory=dict)
    outside: dict[str, str] = field(default_factory=dict)
    providers: list[str] = field(default_factory=list)
    extended: str = ""
