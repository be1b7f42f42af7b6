"""`launch import`: converts an existing script or configuration to a job."""

import argparse
import glob
import shlex
from collections.abc import Iterator
from pathlib import Path

from launcher.catalogue.catalogue import plain
from launcher.cli.import_show import show
from launcher.cli.options import parse, parser, writable
from launcher.cli.port_show import show_port
from launcher.cli.refusal import WrongUse
from launcher.importing.imported import Imported
from launcher.importing.notes import ImportRefused, Note, refuse
from launcher.importing.port import ported
from launcher.importing.read_file import job_group
from launcher.mapping.backend import UnknownVersion, backend_names, get_backend
from launcher.outputs.kinds import JOB
from launcher.port.port import ALL

_MOST_FILES = 3  # named in an offer
_EXAMPLE = "launch import train.sh -o job.yaml && launch dry-run +job=job.yaml"


def main(words: list[str]) -> int:
    """Import a file; exit 1 if it cannot be read as a whole, 2 for a wrong command line."""
    words, argv = _split(words)
    options = parse(_parser(), words)
    given = list(options.files)
    options.file = given[0] if given else None
    _refuse_wrong(options, argv)
    if given:
        from launcher.cli.import_simumax import import_simumax

        code = import_simumax(options, given)
        if code is not None:
            return code

    writable("-o", options.output, JOB)
    if options.to is not None and options.file is not None:
        _refuse_job(options.file, options.to)
    if options.source is not None:
        _add_source(options)
    jobs = _imported(options, argv)
    source = options.file or "arguments"
    if options.to is None:
        return show(jobs, source, options.output, as_json=options.json)
    target, _, version = options.to.partition("@")
    unknown = _unknown(options.accept, jobs)
    if unknown:
        raise WrongUse(f"--accept {unknown}: {source} has no such argument")
    pairs = [(each, ported(each, target, version or None, accepted=options.accept)) for each in jobs]
    return show_port(pairs, source, options.output, as_json=options.json)


def _refuse_job(file: str, to: str) -> None:
    """Refuse to port a job file by `--to`: the override of its backend does."""
    if job_group(file) != "job":
        return
    target, _, version = to.partition("@")
    overrides = (f"+job={file}", f"backend={target}", *((f"backend.version={version}",) if version else ()))
    raise refuse(
        "the file is a job of Launch already",
        file,
        *(shlex.join(("launch", verb, *overrides)) for verb in ("check", "dry-run")),
    )


def _add_source(options: argparse.Namespace) -> None:
    """Add the fork in `--source`, and read the input as what it is for."""
    from launcher.cli.catalogue import added_fork, added_lines

    added = added_fork(options.source, options.name, options.like)
    if not options.json:
        for line in added_lines(added):
            print(line)
    options.backend, options.backend_version = added.fork.backend, added.fork.version


def _unknown(accepted: list[str], jobs: list[Imported]) -> str:
    """Return an accepted argument that no script has."""
    known = {ALL, *(plain(each.flag) for job in jobs for each in job.mapped_args)}
    return next((name for name in accepted if plain(name) not in known), "")


def _parser() -> argparse.ArgumentParser:
    made = parser(
        "import", "Read a script or configuration and write the job that it describes.", _EXAMPLE, overrides=False
    )
    made.add_argument(
        "files",
        nargs="*",
        metavar="FILE",
        help="bash script, YAML, JSON, or a file of arguments; or SimuMax's strategy, model and system files together",
    )
    made.add_argument("--backend", metavar="B", help="backend of the file, if it is not recognised")
    made.add_argument("--backend-version", metavar="V", help="its version; default: the one that fits best")
    made.add_argument(
        "--source",
        metavar="DIR",
        help="checkout that the script starts: its own parser, read from its source, becomes a version of the backend "
        "(launch catalogue add)",
    )
    made.add_argument("--name", metavar="NAME", help="with --source: name of the version; default: the folder's")
    made.add_argument("--like", metavar="B[@V]", help="with --source: version whose mapping and rules it has")
    made.add_argument("--to", metavar="B[@V]", help="port: check and write the job for this backend")
    made.add_argument(
        "--accept",
        action="append",
        default=[],
        metavar="ARGUMENT",
        help="with --to: drop this argument although that changes the model or its loss (all: every one)",
    )
    made.add_argument("--set", action="append", default=[], metavar="VAR=VALUE", help="value of a shell variable")
    made.add_argument("--all-commands", action="store_true", help="every training command, not only the first")
    made.add_argument("--partial", action="store_true", help="import what can be read despite errors")
    made.add_argument("-o", "--output", metavar="JOB.yaml", help="write the job to this file")
    return made


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    """Return the command's own arguments, and the arguments to import after `--`."""
    if "--" not in words:
        return words, []
    at = words.index("--")
    return words[:at], words[at + 1 :]


def _refuse_wrong(options: argparse.Namespace, argv: list[str]) -> None:
    target, _, target_version = (options.to or "").partition("@")
    for name, version in ((options.backend, options.backend_version), (target or None, target_version or None)):
        if name is not None and name not in backend_names():
            raise WrongUse(f"no backend {name!r}", *backend_names())
        if name is not None and version is not None:
            try:
                get_backend(name).version(version)
            except UnknownVersion as error:
                raise WrongUse(str(error)) from None
    if options.to is not None and not target:
        raise WrongUse(
            f"--to {options.to!r}: the name of a backend is missing", *(f"--to {n}" for n in backend_names())
        )
    if options.source is None and (options.name or options.like):
        raise WrongUse(f"{'--name' if options.name else '--like'} needs --source DIR")
    if options.source is not None and (options.backend or options.backend_version):
        raise WrongUse("--source determines backend and version", "--like BACKEND@VERSION")
    if options.accept and options.to is None:
        raise WrongUse("--accept needs --to: only a port drops arguments")
    file, output = options.file, options.output
    if bool(file) == bool(argv):
        raise WrongUse("name one FILE, or give arguments after --", "launch import train.sh")
    if argv and options.backend is None and argv[0].startswith("-"):
        works = (f"--backend {name}" for name in backend_names())
        raise WrongUse("arguments need --backend B: they do not name their backend", *works)
    for each in options.files:
        if not Path(each).exists():
            raise WrongUse(f"there is no file {each}", *_meant(each))
        if output and Path(output).exists() and Path(output).samefile(each):
            raise WrongUse(f"-o {output} is the file that is read: it would be overwritten")
    if len(options.files) > 1 and not all(each.endswith(".json") for each in options.files):
        works = (shlex.join(("launch", "import", each)) for each in options.files[:_MOST_FILES])
        message = "several files are read together only if they are SimuMax's strategy, model and system"
        raise WrongUse(message, *works, shlex.join(("launch", "check", *options.files[:_MOST_FILES])))
    wrong = next((pair for pair in options.set if "=" not in pair or not pair.split("=")[0]), None)
    if wrong is not None:
        raise WrongUse(f"--set takes VARIABLE=VALUE, got {wrong!r}")


def _meant(name: str) -> Iterator[str]:
    """Yield what works in place of a name that is no file: a pattern, or standard input."""
    if name == "-":
        yield "launch import /dev/stdin"
    elif glob.has_magic(name) and next(glob.iglob(name, recursive=True), None) is not None:
        yield shlex.join(("launch", "check", name))


def _imported(options: argparse.Namespace, argv: list[str]) -> list[Imported]:
    from launcher.importing.read_argv import read_argv
    from launcher.importing.read_command import ImportOptions
    from launcher.importing.read_file import read_file

    if argv:
        name = options.backend or backend_names()[0]
        return [read_argv(argv, backend=name, version=options.backend_version, partial=options.partial)]
    read_options = ImportOptions(backend=options.backend, version=options.backend_version, partial=options.partial)
    variables = dict(pair.split("=", 1) for pair in options.set)
    try:
        return read_file(options.file, read_options, variables=variables, all_commands=options.all_commands)
    except UnknownVersion as error:
        raise ImportRefused([Note(message=str(error), where=options.file)]) from None
