"""Shared code of all verbs: their options, composing the job, the files that they write, and JSON."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from launcher.cli.refusal import NotDone, WrongUse
from launcher.cli.streams import json_text
from launcher.mapping.examples import filled
from launcher.nearest import nearest

if TYPE_CHECKING:
    from launcher.job import Job
    from launcher.outputs.kinds import Kind


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Wraps a description to the terminal, and keeps the lines of examples, which are commands to copy."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if "\n" in text:
            return super()._fill_text(text, width, indent)
        return argparse.HelpFormatter._fill_text(self, text, width, indent)


class _Parser(argparse.ArgumentParser):
    """An `ArgumentParser` whose errors are refusals like all others, and whose example names installed backends."""

    words: Sequence[str] = ()

    def format_help(self) -> str:
        self.epilog = filled(self.epilog or "")
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        from launcher.job.secret import without_secrets

        # The message repeats unknown arguments, which may contain a secret.
        near = without_secrets([*_instead_of(message, self)])
        raise WrongUse(without_secrets([message])[0], *near, f"{self.prog} --help")


def _instead_of(message: str, made: _Parser) -> Iterator[str]:
    """Yield for unknown options the nearest ones, and the override that does what the option was meant to do."""
    unknown = message.removeprefix("unrecognized arguments: ")
    for word in unknown.split() if unknown != message else ():
        name, _, value = word.partition("=")
        if word.startswith("--"):
            yield from nearest(name, [flag for flag in made._option_string_actions if flag.startswith("--")])
            index = made.words.index(word) + 1 if word in made.words else len(made.words)
            value = value or next(iter(made.words[index : index + 1]), "")
            takes_overrides = any(action.dest == "overrides" for action in made._actions)
            if takes_overrides and value and "=" not in value and not value.startswith("-"):
                yield from (f"{key}={value}" for key in _overrides_named(name.removeprefix("--").replace("-", "_")))


def _overrides_named(name: str) -> Sequence[str]:
    """Return the override that is called so: a group of files, or the only field with this path or last name."""
    from launcher.compose.search_path import GROUPS, WHOLE_JOB_GROUPS
    from launcher.job import fields

    if name in GROUPS:
        return (f"+{name}" if name in WHOLE_JOB_GROUPS else name,)
    found = [path for path in fields() if path == name or path.endswith(f".{name}")]
    return found if len(found) == 1 else ()


def parser(verb: str, doc: str, example: str, *, overrides: bool = True) -> argparse.ArgumentParser:
    """Return the parser of a verb with the options that every verb has."""
    made = _Parser(
        prog=f"launch {verb}",
        description=doc,
        epilog=f"example:\n  {example}" + ("\n\n{installed}" if overrides else ""),
        formatter_class=_Formatter,
        allow_abbrev=False,
    )
    if overrides:
        made.add_argument(
            "overrides", nargs="*", default=[], metavar="OVERRIDE", help="Hydra overrides, such as +recipe=qwen3_moe"
        )
        made.add_argument(
            "--config-dir", action="append", default=[], metavar="DIR", help="folder with your own recipes and groups"
        )
    made.add_argument("--json", action="store_true", help="machine-readable output")
    made.set_defaults(verb=verb)
    return made


def add_run(made: argparse.ArgumentParser, *, several: bool = False) -> None:
    """Add the positional argument that names a run, `id`; `ids` where any number of runs may be named."""
    name, count = ("ids", "*") if several else ("id", None)
    made.add_argument(name, metavar="ID", nargs=count, help="id of a run (launch ps), or its folder")


class _Described(Exception):
    """The parser of a verb that is described, not run."""

    def __init__(self, made: argparse.ArgumentParser) -> None:
        super().__init__()
        self.parser = made


_describing = ContextVar("_describing", default=False)


def parser_of(main: Callable[[list[str]], int], words: Sequence[str] = ()) -> argparse.ArgumentParser:
    """Return the parser that a verb makes, with its sub-verb among the words; the verb does nothing else."""
    token = _describing.set(True)
    try:
        main([*words, "--help"])
    except _Described as described:
        return described.parser
    finally:
        _describing.reset(token)
    raise AssertionError(f"{main.__module__} parses its words without launcher.cli.options.parse")


def parse(made: argparse.ArgumentParser, words: list[str]) -> argparse.Namespace:
    """Parse arguments; options may come before, between or after overrides."""
    if _describing.get():
        raise _Described(made)
    if isinstance(made, _Parser):
        made.words = words
    return made.parse_intermixed_args(words)


def composed(options: argparse.Namespace) -> Job:
    """Compose the job of a verb.

    Raises:
        ComposeError: the overrides do not describe a job.
        Refused: there is no such version of its backend.
    """
    return composed_of(options.overrides, options.config_dir)


def composed_of(words: Sequence[str], config_dirs: Sequence[str]) -> Job:
    """Compose a job from overrides; raises as `composed`."""
    # Here, because verbs without a job would spend most of their start on them.
    from launcher.compose import compose

    job = compose(words, config_dirs)
    if job.backend.name is not None and job.backend.version is not None:
        from launcher.pipeline import chosen_backend

        chosen_backend(job)
    return job


def writable(flag: str, file: str | None, kind: Kind, *endings: str) -> None:
    """Refuse, before anything is computed, a file that cannot be written, or that would replace something else.

    Args:
        file: as given; None: not given.
        kind: kind of the file; only an existing file of this kind may be replaced.
        endings: allowed suffixes of its name; none: any.

    Raises:
        WrongUse: the suffix is wrong, the name is that of a folder, or its folder is missing or not writable.
        NotDone: another kind of file exists there.
    """
    if file is None:
        return
    from launcher.outputs.files import OutputRefused, check_output  # loads tempfile; most commands write no file

    path = Path(file).expanduser()
    folder = path.absolute().parent
    if endings and path.suffix not in endings:
        named = shlex.join((flag, f"{path.stem}{endings[0]}"))
        raise WrongUse(f"{flag} {file}: the name must end in {' or '.join(endings)}", named)
    if path.is_dir():
        raise WrongUse(f"{flag} {file}: is a folder; expected a file", shlex.join((flag, f"{file.rstrip('/')}/NAME")))
    if not folder.is_dir():
        raise WrongUse(
            f"{flag} {file}: there is no folder {path.parent}", shlex.join(("mkdir", "-p", str(path.parent)))
        )
    if not os.access(path if path.exists() else folder, os.W_OK):
        closed = path if path.exists() else folder
        free = next((each for each in ("./", "~/") if _is_writable(Path(each).expanduser())), None)
        works = [] if free is None else [f"{flag} {free}{shlex.quote(path.name)}"]
        raise WrongUse(f"{flag} {file}: {closed} is not writable", *works)
    try:
        check_output(path, kind)
    except OutputRefused as error:
        works = [] if error.free is None else [f"{flag} {shlex.quote(str(error.free))}"]
        raise NotDone(f"{flag} {error}", *works, rule="CMD-OUTPUT") from None


def _is_writable(folder: Path) -> bool:
    return folder.is_dir() and os.access(folder, os.W_OK)


def write_file(file: str | Path, content: str, kind: Kind) -> None:
    """Write a file that the command line names, and print where an earlier one is kept; raises as `write_output`.

    A job or hardware file tells editors its schema, that of this installation.
    """
    from launcher.outputs.files import write_output
    from launcher.outputs.kinds import HARDWARE, JOB

    if kind in (JOB, HARDWARE):
        from launcher.schema.files import editor_line, installed, with_editor_line

        content = with_editor_line(content, editor_line(installed(), "hardware" if kind is HARDWARE else ""))
    print_kept(file, write_output(file, content, kind))


def print_kept(file: str | Path, kept: Path | None) -> None:
    """Print where an earlier file, which may have been edited, is kept; None: there was none."""
    if kept is not None:
        print(f"# the earlier {Path(file).name} is kept as {kept}", file=sys.stderr)


def readable(flag: str, file: str | None) -> None:
    """Refuse an input file that does not exist; None: not given.

    Raises:
        WrongUse: there is no such file.
    """
    if file is not None and not Path(file).expanduser().is_file():
        what = "is a folder; expected a file" if Path(file).expanduser().is_dir() else "there is no such file"
        raise WrongUse(f"{flag} {file}: {what}")


def print_json(tree: Any) -> None:
    """Print plain data as JSON."""
    print(json_text(tree))
