"""Imports scripts of other repositories, and compares the words of the training command with those of a real bash.

    python -m tools.bench.other_scripts --checkouts DIR [--list FILE] [--refusals]
    python -m tools.bench.other_scripts --upstream PROJECT@VERSION=DIR ... [--refusals] [--state FILE] [--write]

Which repositories, commits and scripts: other_scripts.json and later_scripts.json (`--list`), each written before any
of it was measured. DIR holds checkouts named OWNER+NAME; nothing is fetched, and the scripts run with stubs in an empty
root only (tools.bench.real_bash, as root). A script that is refused without its checkout is read again with it
(`--source`). Variables that a script does not set have their own name as value on both sides. Prints a table and the
reasons; `--refusals` lists each with its line. `--upstream` measures all scripts of the upstreams' own checkouts
instead (tools.bench.upstream_scripts), goes on where it was stopped, and with `--write` puts the table where
docs/import.md takes it from; exit code 1 below 98 %.
"""

import argparse
import json
import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from launcher.catalogue.checkout.files import CheckoutRefused
from launcher.catalogue.user import VARIABLE
from launcher.importing.evaluate import run_script
from launcher.importing.invocation import Invocation, find
from launcher.importing.notes import ImportRefused
from launcher.importing.read_command import ImportOptions
from launcher.importing.read_file import read_file
from launcher.importing.shell.placeholders import shown
from launcher.importing.shell.state import State
from launcher.mapping.add_fork import AddedFork, add_fork
from tools.bench import upstream_scripts
from tools.bench.real_bash import commands_of, make_root, words_after
from tools.bench.upstream_scripts import upstream_of

PAGE = Path(__file__).resolve().parents[1] / "docs" / "import_upstream.md"
STATE = Path.home() / ".cache" / "launch-tests" / "upstream_scripts.json"
LIST = Path(__file__).with_name("other_scripts.json")
# What a program prints, and the folder in which bash starts.
_UNKNOWN = re.compile(r"\$\(.*\)|\$\{PWD\}|\$PWD\b", re.DOTALL)
_VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*|\d)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """One script.

    Attributes:
        alone: it is imported as it is; `source`: with its checkout.
        why: the refusal of both.
        words: the training command has bash's words; None: bash starts none, or a program
            prints some of them.
        differ: the first word that differs.
    """

    repository: str
    script: str
    alone: bool
    source: bool
    why: str = ""
    words: bool | None = None
    differ: str = ""


def measured(checkouts: Path, root: Path, chosen: Path) -> Iterator[Read]:
    """Yield the outcome of each script of the list: first without any fork, then with its own."""
    repositories = json.loads(chosen.read_text(encoding="utf-8"))["repositories"]
    folders = {each["repository"]: checkouts / each["repository"].replace("/", "+") for each in repositories}
    alone = {
        (each["repository"], script): _refusal(folders[each["repository"]] / script, ImportOptions())
        for each in repositories
        for script in each["scripts"]
    }
    for each in repositories:
        folder = folders[each["repository"]]
        added = _fork(folder)
        for script in each["scripts"]:
            why = alone[each["repository"], script]
            if why and added is not None:
                own = ImportOptions(backend=added.fork.backend, version=added.fork.version)
                why = _refusal(folder / script, own)
            words, differ = _compared(root, folder, script)
            yield Read(
                repository=each["repository"],
                script=script,
                alone=not alone[each["repository"], script],
                source=not why,
                why=why,
                words=words,
                differ=differ,
            )


def _fork(folder: Path) -> AddedFork | None:
    try:
        return add_fork(folder, folder.name.rpartition("+")[2] + "-" + folder.name.partition("+")[0])
    except CheckoutRefused:
        return None


def _refusal(path: Path, options: ImportOptions) -> str:
    try:
        read_file(path, options)
    except ImportRefused as error:
        return "; ".join(str(note) for note in error.notes)
    return ""


def _compared(root: Path, folder: Path, script: str) -> tuple[bool | None, str]:
    """Return whether the training command has the words that bash gives it, with the first difference."""
    path = folder / script
    found = _invocation(path, {})
    if found is None:
        return None, ""
    text = path.read_text(encoding="utf-8", errors="replace")
    names = {name for word in found.argv for name in _VARIABLE.findall(shown(word))}
    names -= {"PWD"} | {name for name in names if re.search(rf"^\s*(export\s+)?{name}=", text, re.MULTILINE)}
    last = max((int(name) for name in names if name.isdigit()), default=0)
    names |= {str(number + 1) for number in range(last)}
    variables = {name: f"v_{name}" for name in sorted(names)}
    given = _invocation(path, variables) or found
    ours = [shown(word).replace(str(folder.parent), "/work") for word in given.argv]
    theirs = words_after(commands_of(root, folder, script, variables), given.program)
    if not theirs:
        return None, ""
    if any(_same(ours, each) for each in theirs):
        return True, ""
    pairs = zip([*ours, ""], [*theirs[0], ""], strict=False)
    return False, next((f"{one!r}, bash: {other!r}" for one, other in pairs if one != other), "the number of words")


def _same(ours: list[str], theirs: list[str]) -> bool:
    """Return whether the words are bash's; what a program prints is unknown, and its stub prints nothing."""
    if not any(_UNKNOWN.search(word) for word in ours):
        return ours == theirs
    kept = ours if len(ours) == len(theirs) else [word for word in ours if not _UNKNOWN.fullmatch(word)]
    patterns = (".*".join(map(re.escape, _UNKNOWN.split(word))) for word in kept)
    return len(kept) == len(theirs) and all(map(re.fullmatch, patterns, theirs))


def _invocation(path: Path, variables: dict[str, str]) -> Invocation | None:
    state = State(script=str(path), variables=dict(variables), fixed=frozenset(variables))
    try:
        run_script(path.read_text(encoding="utf-8", errors="replace"), state, path.parent)
    except (ImportRefused, RecursionError):
        return None
    found, _ = find(state.commands)
    return found[0] if found else None


def _row(name: str, found: list[Read]) -> str:
    asked = [each for each in found if each.words is not None]
    cells = (
        *(name, len(found), sum(each.alone for each in found), sum(each.source for each in found)),
        f"{sum(each.words is True for each in asked)} of {len(asked)}",
    )
    return f"| {' | '.join(map(str, cells))} |"


# Parts of messages, and what a table calls them.
_REASONS = (
    ("not arguments of", "options that no version has"),
    ("is not an argument of", "an option that no version has"),
    ("another kind of model", "another kind of model"),
    ("is none of the backends", "another program"),
    ("which is none of", "another program"),
    ("not a known entry point", "an unknown script"),
    ("starts a known training", "no training command"),
    ("needs a value", "an option without its value"),
    ("unclosed", "bash that is not closed"),
)


def reason_of(why: str) -> str:
    """Return the kind of a refusal."""
    return next((name for part, name in _REASONS if part in why), why.partition(": ")[2][:60] or why[:60])


def main() -> int:
    """Print the table; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--checkouts", type=Path, metavar="DIR")
    chosen.add_argument("--upstream", type=upstream_of, action="append", metavar="PROJECT@VERSION=DIR")
    parser.add_argument("--list", type=Path, default=LIST, metavar="FILE", help="of --checkouts")
    parser.add_argument("--refusals", action="store_true", help="list every refusal and difference with its reason")
    parser.add_argument("--state", type=Path, default=STATE, metavar="FILE", help="of --upstream")
    parser.add_argument("--write", action="store_true", help="of --upstream: write tools/docs/import_upstream.md")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as root:
        os.environ[VARIABLE] = folder
        make_root(Path(root))
        if given.upstream:
            return _of_upstreams(given, Path(root))
        found = list(measured(given.checkouts.expanduser(), Path(root), given.list))
    print("| repository | scripts | imported | with its checkout | words of bash |\n|---|---|---|---|---|")
    for name in dict.fromkeys(each.repository for each in found):
        print(_row(name, [each for each in found if each.repository == name]))
    print(_row("all", found))
    reasons = Counter(reason_of(each.why) for each in found if each.why)
    print("\nRefused: " + ", ".join(f"{name} ({count})" for name, count in reasons.most_common()) + ".")
    for each in found if given.refusals else ():
        if each.why or each.words is False:
            print(
                f"{each.repository} {each.script}: {each.why or 'other words: ' + each.differ}"[:400], file=sys.stderr
            )
    return 0


def _of_upstreams(given: argparse.Namespace, root: Path) -> int:
    found = list(upstream_scripts.measured(given.upstream, root, _compared, given.state))
    print(upstream_scripts.page(found))
    if given.refusals:
        upstream_scripts.details(found)
    if given.write:
        PAGE.write_text(upstream_scripts.page(found) + "\n", encoding="utf-8")
    return 0 if upstream_scripts.reached(found) else 1


if __name__ == "__main__":
    sys.exit(main())
