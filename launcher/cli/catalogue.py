"""`launch catalogue`: the parser of a checkout as a version of the backend that it is a fork of."""

import sys
from collections.abc import Callable
from typing import Any

from launcher.catalogue.checkout.files import CheckoutRefused
from launcher.catalogue.user import Fork, ForkDetails, forks
from launcher.cli.options import parse, parser, print_json
from launcher.cli.refusal import NotDone, WrongUse
from launcher.mapping.add_fork import AddedFork, add_fork, remove_fork
from launcher.mapping.backend import backend_names, broken_forks, get_backend
from launcher.mapping.examples import filled
from launcher.mapping.forks import loaded
from launcher.report.text_page import page_of, print_lines
from launcher.report.text_table import table
from launcher.syntax import escaped

SUBVERBS = {
    "add": "read a checkout's own parser and keep it as a version of its backend",
    "list": "the forks that you added",
    "remove": "forget a fork",
}
_HELP = """\
usage: launch catalogue {verbs} …

{lines}
example:
  launch catalogue add ~/Megatron-LM --name ours
  launch import train.sh --backend-version ours -o job.yaml
  launch import train.sh --source ~/Megatron-LM -o job.yaml    both at once
The parser is read from its source; nothing of the checkout is run or imported.
"""
_ADD = "launch catalogue add ~/Megatron-LM --name ours"
_SHOWN = 12


def main(words: list[str]) -> int:
    """Add, list or remove a fork; exit 1 if the checkout is refused, 2 for a wrong command line."""
    if not words or words[0] in ("-h", "--help"):
        lines = "".join(f"  {name:8} {doc}\n" for name, doc in SUBVERBS.items())
        print(filled(_HELP.replace("{verbs}", "|".join(SUBVERBS)).replace("{lines}", lines)), end="")
        return 0 if words else 2
    if words[0] not in SUBVERBS:
        raise WrongUse(f"{words[0]!r} is not one of {', '.join(SUBVERBS)}", "launch catalogue --help")
    return _BODIES[words[0]](words[1:])


def _add(words: list[str]) -> int:
    made = parser("catalogue add", f"{SUBVERBS['add'].capitalize()}.", _ADD, overrides=False)
    made.add_argument("dir", metavar="DIR", help="the checkout; it is read only")
    made.add_argument("--name", required=True, help="name of the version: backend.version=NAME")
    made.add_argument(
        "--like",
        metavar="B[@V]",
        help="version whose mapping and rules it has; default: the one with the most equal arguments",
    )
    made.add_argument(
        "--replace", action="store_true", help="replace a fork of this name that was read from another folder"
    )
    options = parse(made, words)
    added = added_fork(options.dir, options.name, options.like, replace=options.replace)
    if options.json:
        print_json(
            {**_tree(added.fork, added.details), "notes": list(added.notes), "unmapped": list(added.rows_dropped)}
        )
    else:
        for line in added_lines(added):
            print(line)
        print(f"# next: launch import train.sh --backend-version {added.fork.name}")
    return 0


def added_fork(directory: str, name: str | None, like: str | None, *, replace: bool = False) -> AddedFork:
    """Add a fork.

    Raises:
        NotDone: the checkout, the name or the version is refused, or the folder cannot be written.
    """
    try:
        return add_fork(directory, name, like, replace=replace)
    except CheckoutRefused as error:
        where = f"{error.where}: " if error.where else ""
        raise NotDone(f"{where}{error.message}", *error.works, rule="CMD-CHECKOUT") from None
    except OSError as error:
        raise NotDone(f"the catalogue cannot be kept: {error}", "LAUNCH_CATALOGUES=DIR") from None


def added_lines(added: AddedFork) -> list[str]:
    """Return what was read of a checkout, in lines."""
    fork, details = added.fork, added.details
    title = get_backend(fork.backend).title
    alike = "" if added.alike is None else f", the nearest known ({added.alike:.0%} of the arguments are the same)"
    base = details.parser or f"extends a parser that is not in the checkout, taken as that of {fork.like}"
    lines = [
        f"# {fork.version}: like {title} {fork.like}{alike}",
        f"parser     {base}; {len(added.catalogue)} arguments",
        f"new        {len(details.new)}{_some(details.new)}",
        f"missing    {len(details.missing)}{_some(details.missing)}",
    ]
    if added.rows_dropped:
        lines.append(
            f"unmapped   {len(added.rows_dropped)} fields, which a job for it cannot set{_some(added.rows_dropped)}"
        )
    lines += [f"unread     {note}" for note in added.notes[:_SHOWN]]
    return [*lines, f"# kept in {fork.file}"]


def _some(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
    return f": {shown}" if names else ""


def _list(words: list[str]) -> int:
    made = parser("catalogue list", "List the forks that you added.", "launch catalogue list", overrides=False)
    options = parse(made, words)
    found: list[tuple[Fork, ForkDetails, int]] = []
    broken: dict[str, str] = {}
    for name in backend_names():
        backend = get_backend(name)
        reasons = broken_forks(backend)
        broken.update(reasons)
        for fork in forks(name):
            content = loaded(fork)
            if content is not None and fork.name not in reasons:
                found.append((fork, content.details, len(content.catalogue)))
    if options.json:
        print_json({"forks": [_tree(fork, details) for fork, details, _ in found], "broken": broken})
        return 0
    rows = [
        (
            fork.name,
            f"{fork.backend}@{fork.version}",
            f"{count} arguments, {len(details.new)} new",
            escaped(str(details.checkout)),
        )
        for fork, details, count in found
    ]
    for line in table(page_of(sys.stdout), rows):
        print(line)
    for name, why in broken.items():
        print_lines([f"{name}: {why} (works: launch catalogue remove {name})"], sys.stderr)
    if not found and not broken:
        print(f"no forks yet: {_ADD}")
    return 0


def _remove(words: list[str]) -> int:
    made = parser("catalogue remove", "Forget a fork.", "launch catalogue remove ours", overrides=False)
    made.add_argument("name", metavar="NAME")
    options = parse(made, words)
    removed = remove_fork(options.name)
    if not removed:
        known = [fork.name for name in backend_names() for fork in forks(name)]
        raise NotDone(f"no fork {options.name!r}", *(f"launch catalogue remove {name}" for name in known))
    if options.json:
        print_json({"removed": [str(fork.file) for fork in removed]})
    else:
        for fork in removed:
            print(f"removed {fork.file}")
    return 0


def _tree(fork: Fork, details: ForkDetails) -> dict[str, Any]:
    return {
        "name": fork.name,
        "backend": fork.backend,
        "like": fork.like,
        "version": fork.version,
        "file": str(fork.file),
        "checkout": details.checkout,
        "revision": details.revision,
        "parser": details.parser,
        "scripts": list(details.scripts),
        "new": list(details.new),
        "missing": list(details.missing),
    }


_BODIES: dict[str, Callable[[list[str]], int]] = {"add": _add, "list": _list, "remove": _remove}
