"""Parsers with a dataclass of arguments for each command, such as ms-swift's: their fields as catalogue rows."""

from __future__ import annotations

from collections.abc import Mapping

from launcher.catalogue.checkout import hf_parser
from launcher.catalogue.checkout.classes import Package, dataclass_fields
from launcher.catalogue.checkout.rows import Row
from launcher.records import dataclass

# Base classes that have no fields.
_PLAIN = frozenset({"object", "ABC", "Protocol", "Enum", "str"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandClasses:
    """Where a stack's checkouts have the classes of their commands.

    Attributes:
        commands: class of each command; the first of the names that a checkout has.
        entry: file of a command, with `{command}`: a checkout without it has no such command.
        folders: folders in which the classes and their bases are looked for.
    """

    commands: Mapping[str, tuple[str, ...]]
    entry: str
    folders: tuple[str, ...]

    @property
    def entries(self) -> tuple[str, ...]:
        """The files of the commands."""
        return tuple(self.entry.format(command=command) for command in self.commands)

    def classes_in(self, package: Package) -> dict[str, str]:
        """Return the class of each command of a checkout.

        Raises:
            LookupError: a command has none.
        """
        there = [command for command in self.commands if (package.root / self.entry.format(command=command)).is_file()]
        found = {command: next(filter(package.find, self.commands[command]), "") for command in there}
        missing = [command for command, name in found.items() if not name]
        if missing:
            raise LookupError(f"no arguments class of {', '.join(missing)} found in {package.root}")
        return found


def rows_of_commands(package: Package, classes: Mapping[str, str]) -> list[Row]:
    """Return an argument for each field of the commands' classes, with the commands that have it.

    Raises:
        LookupError, ValueError: a class is not in the package, or its bases have no order.
    """
    rows: dict[str, Row] = {}
    seen: dict[str, list[str]] = {}
    for command, name in classes.items():
        for field in dataclass_fields(package.mro(name)).values():
            if field.name.startswith("_"):
                continue  # the class's own state: __post_init__ overwrites what a user gives
            row = hf_parser.argument(field)
            seen.setdefault(field.name, []).append(command)
            first = rows.setdefault(field.name, row)
            if row.get("default") != first.get("default"):
                first.setdefault("command_defaults", {})[command] = row.get("default")
                if "negation" in row:
                    first["negation"] = row["negation"]
    for name, row in rows.items():
        if len(seen[name]) < len(classes):
            row["commands"] = seen[name]
    return list(rows.values())


def outside_bases(package: Package, classes: Mapping[str, str]) -> dict[str, str]:
    """Return base classes of the commands' classes that are not in the package, and where a class names them."""
    found: dict[str, str] = {}
    for name in classes.values():
        for owner in package.mro(name):
            for base in owner.bases:
                if base in package.missing_bases - _PLAIN:
                    found.setdefault(base, owner.at(owner.node))
    return found
