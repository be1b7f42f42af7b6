"""Imports the scripts of public forks of Megatron-LM with the parser of the fork's own checkout.

    python -m tools.bench.forks --checkouts DIR [--held-out] [--refusals]

DIR holds checkouts named OWNER+NAME (`git clone https://github.com/OWNER/NAME OWNER+NAME`); nothing is fetched. Which
forks, commits and scripts: fork_scripts.json, written before any of them was measured. `--held-out` takes the other
scripts of the same checkouts that start a training by one of the fork's entry scripts, none of which is in the list.
Prints, for each fork, how many of its scripts can be imported without its checkout and with it, and how many of the
latter give the same arguments again; `--refusals` lists every refusal with its reason.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from launcher.catalogue.checkout.files import CheckoutRefused
from launcher.catalogue.user import VARIABLE
from launcher.importing.imported import Imported
from launcher.importing.notes import ImportRefused
from launcher.importing.read_command import ImportOptions
from launcher.importing.read_file import read_file
from launcher.importing.roundtrip import lost
from launcher.mapping.add_fork import AddedFork, add_fork

LIST = Path(__file__).with_name("fork_scripts.json")
_SUFFIXES = (".sh", ".slurm", ".sbatch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """One script: whether it can be imported without the checkout, and with it.

    Attributes:
        why: of the refusal with the checkout; empty: none.
        lost: arguments that the job does not write as the script does.
        arguments, fields: number of its arguments, and of those that became fields.
    """

    script: str
    without: bool
    why: str = ""
    lost: tuple[str, ...] = ()
    arguments: int = 0
    fields: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One fork: its catalogue and its scripts."""

    repository: str
    added: AddedFork | None
    why: str
    reads: tuple[Read, ...]


def measured(checkouts: Path, *, held_out: bool = False) -> Iterator[Measured]:
    """Yield the outcome of each fork whose checkout is there."""
    for fork in json.loads(LIST.read_text(encoding="utf-8"))["forks"]:
        folder = checkouts / fork["repository"].replace("/", "+")
        if not folder.is_dir():
            print(f"{fork['repository']}: no checkout in {folder}", file=sys.stderr)
            continue
        try:
            added = add_fork(folder, folder.name.rpartition("+")[2] + "-" + folder.name.partition("+")[0])
        except CheckoutRefused as error:
            yield Measured(repository=fork["repository"], added=None, why=error.message, reads=())
            continue
        scripts = _others(folder, added, fork["scripts"]) if held_out else fork["scripts"]
        reads = tuple(_read(folder, script, added) for script in scripts)
        yield Measured(repository=fork["repository"], added=added, why="", reads=reads)


def _others(folder: Path, added: AddedFork, listed: Sequence[str]) -> list[str]:
    names = {script.rpartition("/")[2] for script in added.details.scripts}
    files = (path for path in sorted(folder.rglob("*")) if path.suffix in _SUFFIXES and path.is_file())
    paths = [path for path in files if not path.is_symlink() and _starts(path, names)]
    return [script for script in (path.relative_to(folder).as_posix() for path in paths) if script not in listed]


def _starts(path: Path, names: set[str]) -> bool:
    text = path.read_text(encoding="utf-8", errors="replace")
    return any(name in text for name in names)


def _read(folder: Path, script: str, added: AddedFork) -> Read:
    backend = added.fork.backend
    plain = _imported(folder / script, ImportOptions())
    official = _imported(folder / script, ImportOptions(backend=backend, version=added.fork.like))
    without = (isinstance(plain, Imported) and "+" not in plain.version) or isinstance(official, Imported)
    own = _imported(folder / script, ImportOptions(backend=backend, version=added.fork.version))
    if isinstance(own, str):
        return Read(script=script, without=without, why=own)
    mapped = [each for each in own.mapped_args if each.fields and not each.fields[0].startswith("backend.")]
    return Read(
        script=script,
        without=without,
        lost=tuple(each.flag for each in lost(own)),
        arguments=len(own.mapped_args),
        fields=len(mapped),
    )


def _imported(path: Path, options: ImportOptions) -> Imported | str:
    try:
        return read_file(path, options)[0]
    except ImportRefused as error:
        return "; ".join(str(note) for note in error.notes)


def _row(each: Measured) -> str:
    own = [read for read in each.reads if not read.why]
    count = len(each.reads)
    like = "refused" if each.added is None else each.added.fork.like
    new = 0 if each.added is None else len(each.added.details.new)
    arguments = sum(read.arguments for read in own)
    fields = sum(read.fields for read in own)
    share = f"{fields / arguments:.0%}" if arguments else "–"
    cells = (
        *(each.repository, like, new, count, sum(read.without for read in each.reads), len(own)),
        *(sum(not read.lost for read in own), share),
    )
    return f"| {' | '.join(map(str, cells))} |"


def main() -> int:
    """Print the table; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.bench.forks")
    parser.add_argument("--checkouts", type=Path, required=True, metavar="DIR")
    parser.add_argument("--held-out", action="store_true", help="other scripts of the same checkouts")
    parser.add_argument("--refusals", action="store_true", help="list every refusal with its reason")
    given = parser.parse_args()
    head = "fork | like | new arguments | scripts | imported without | with its checkout | the same again | fields"
    with tempfile.TemporaryDirectory() as folder:
        os.environ[VARIABLE] = folder
        found = list(measured(given.checkouts.expanduser(), held_out=given.held_out))
    print(f"| {head} |\n|{'---|' * 8}")
    for each in found:
        print(_row(each))
    reads = [read for each in found for read in each.reads]
    own = [read for read in reads if not read.why]
    print(
        f"{len(reads)} scripts of {len(found)} forks: {sum(read.without for read in reads)} imported without the "
        f"checkout, {len(own)} with it, {sum(not read.lost for read in own)} of these the same again"
    )
    for each in found if given.refusals else ():
        if each.why:
            print(f"{each.repository}: {each.why}")
        for read in each.reads:
            if read.why or read.lost:
                print(f"{each.repository} {read.script}: {read.why or 'not the same: ' + ', '.join(read.lost)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
