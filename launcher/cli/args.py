"""`launch args`: lists the arguments that a backend version, a launcher or the environment takes, from catalogues."""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import fields

from launcher.catalogue.catalogue import Argument, Catalogue
from launcher.catalogue.cli_syntax import arity, boolean_style, default_text, kind
from launcher.cli.explain_variables import VARIABLES
from launcher.cli.options import parse, parser, print_json
from launcher.cli.refusal import NotDone, WrongUse
from launcher.mapping.backend import UnknownBackend, UnknownVersion, backend_names, get_backend
from launcher.mapping.launchers import ENVIRONMENT, Starter, launcher_names, starters, variables_of
from launcher.records import dataclass
from launcher.report.text_page import Page, page_of

_EXAMPLES = """\
launch args {cuda} --backend-version {old} moe
  launch args torchrun
  launch args environment HCCL
  launch args {npu} --environment"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listed:
    """A catalogue that is listed, and its name."""

    name: str
    catalogue: Catalogue


def main(words: list[str]) -> int:
    """List a catalogue; exit 1 if nothing matches the text, 2 for an unknown backend or version."""
    made = parser("args", "List the arguments that a backend or launcher accepts.", _EXAMPLES, overrides=False)
    made.add_argument(
        "backend", nargs="?", metavar="BACKEND", help="a backend, a launcher (torchrun, msrun …) or `environment`"
    )
    made.add_argument(
        "names", nargs="*", default=[], metavar="TEXT", help="only arguments whose name contains one of these"
    )
    made.add_argument("--backend-version", metavar="V", help="default: the one that jobs get; of a launcher the newest")
    made.add_argument(
        "--environment",
        action="store_true",
        help="variables that launch sets, or the backend's code reads",
    )
    options = parse(made, words)
    if options.backend and "@" in options.backend:  # as for `import --to B@V`
        options.backend, _, version = options.backend.partition("@")
        options.backend_version = options.backend_version or version or None
    listed = _listed(options.backend, options.backend_version, environment=options.environment)
    chosen = [(each, argument) for each in listed for argument in _chosen(each.catalogue, options.names)]
    ours = _set(options.backend, options.names) if options.environment else []
    if not chosen and not ours:
        raise _nothing(options.backend, listed, options.names)
    if options.json:
        print_json({**_tree(options.backend, listed, chosen), **({"set": ours} if options.environment else {})})
        return 0
    lines = []
    for row in ours:
        when = f" {row['when']}" if row["when"] else ""
        lines.append(f"{row['name']}={row['value']}  set by launch{when}  {row['meaning']}  [{row['source']}]")
    lines += [_line(each, argument, named=len(listed) > 1) for each, argument in chosen]
    # Programs that read a pipe get a line for each, whatever COLUMNS says.
    print("\n".join((page_of(sys.stdout) if sys.stdout.isatty() else Page()).wrapped(lines)))
    return 0


def _listed(name: str | None, version: str | None, *, environment: bool) -> list[_Listed]:
    """Return the catalogues of a backend or launcher.

    Raises:
        WrongUse: the name is unknown, or there is no catalogue for that version.
    """
    started = [starter for starter in starters() if starter.name == name]
    try:
        return _of_launcher(started, version) if started else _of_backend(name or "", version, environment=environment)
    except UnknownBackend:
        what = f"no backend or launcher {name!r}" if name else "the name of a backend or launcher is missing"
        raise WrongUse(what, *backend_names(), *launcher_names(), ENVIRONMENT) from None
    except UnknownVersion as error:
        raise WrongUse(str(error)) from None


def _of_launcher(started: Sequence[Starter], version: str | None) -> list[_Listed]:
    versions = {starter.catalogue.version for starter in started}
    if version is not None and version not in versions:
        raise UnknownVersion(f"{started[0].name} {version} is not known; versions: {', '.join(sorted(versions))}")
    return [_Listed(name=f"{starter.backend} {starter.name}", catalogue=starter.catalogue) for starter in started]


def _of_backend(name: str, version: str | None, *, environment: bool) -> list[_Listed]:
    backend = get_backend(name)
    if environment:
        found = variables_of(name)
        return [] if found is None else [_Listed(name=f"{name} {ENVIRONMENT}", catalogue=found)]
    if version in backend.other_entries:
        return [_Listed(name=f"{name} {version}", catalogue=backend.catalogue(str(version)))]
    try:
        known = backend.version(version)
    except UnknownVersion as error:
        raise UnknownVersion(", ".join((str(error), *backend.other_entries))) from None
    return [_Listed(name=f"{name} {known}", catalogue=backend.catalogue(known))]


def _chosen(catalogue: Catalogue, names: Sequence[str]) -> list[Argument]:
    wanted = [text.lstrip("-").replace("_", "-").lower() for text in names]
    return [
        argument
        for argument in catalogue.arguments
        if not wanted
        or any(text in name.replace("_", "-").lower() for text in wanted for name in (argument.name, *argument.aliases))
    ]


def _set(name: str, names: Sequence[str]) -> list[dict[str, str]]:
    """Return the variables that jobs of a backend get; `backend.env` overrides them."""
    return [
        {
            "name": row.name,
            "value": row.text,
            "when": row.when,
            "meaning": row.meaning or (VARIABLES[row.name].meaning if row.name in VARIABLES else ""),
            "source": row.source,
        }
        for row in get_backend(name).environment
        if not names or any(text.lower() in row.name.lower() for text in names)
    ]


def _nothing(name: str, listed: Sequence[_Listed], names: Sequence[str]) -> NotDone:
    near = list(dict.fromkeys(near for each in listed for name in names for near in each.catalogue.suggest(name)))[:3]
    hint = f"; did you mean {' · '.join(near)}?" if near else ""
    where = " or ".join(each.name for each in listed) or "this backend"
    whole = [f"launch args {shlex.quote(name)}"] if names else []
    return NotDone(f"no argument of {where} contains {' or '.join(names)}{hint}", *(near or whole))


def _tree(name: str, listed: Sequence[_Listed], chosen: Sequence[tuple[_Listed, Argument]]) -> dict[str, object]:
    several = len(listed) > 1
    return {
        "backend": name,
        "version": None if several or not listed else listed[0].catalogue.version,
        "source": [dict(each.catalogue.source) for each in listed],
        "arguments": [
            {**_argument_tree(argument, each.catalogue), **({"read_by": each.catalogue.backend} if several else {})}
            for each, argument in chosen
        ],
    }


def _argument_tree(argument: Argument, catalogue: Catalogue) -> dict[str, object]:
    plain = {
        name: getattr(argument, name)
        for name in (field.name for field in fields(argument))
        if getattr(argument, name) not in (None, (), "", {})
    }
    if argument.has_default:
        plain["default"] = argument.default
    return {**plain, "arity": arity(argument), "boolean_style": boolean_style(argument, catalogue)}


def _line(listed: _Listed, argument: Argument, *, named: bool) -> str:
    aliases = f" ({', '.join(argument.aliases)})" if argument.aliases else ""
    how = boolean_style(argument, listed.catalogue) or (
        f"takes {arity(argument)}" if arity(argument) != "1" and listed.catalogue.style != "yaml" else ""
    )
    commands = f"only {', '.join(argument.commands)}" if argument.commands else ""
    default = default_text(argument)
    parts = [kind(argument), f"default {default}" if default != "unknown" else "", how, commands]
    owner = f"{listed.catalogue.backend}: " if named else ""
    note = f"  {argument.owner}" if listed.catalogue.style == "env" and argument.owner else ""
    return f"{owner}{argument.name}{aliases}  {'; '.join(part for part in parts if part)}{note}  [{argument.source}]"
