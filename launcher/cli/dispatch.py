"""Dispatches to a verb: one table of verbs, looked up without importing any of them."""

from importlib import import_module
from typing import NoReturn

from backends import BUILT_IN
from launcher.nearest import nearest
from launcher.records import dataclass

HELP = """\
Launch: one LLM training job, described once, started on any of several training stacks.

usage: launch [VERB] OVERRIDES …          no verb means run

  launch +recipe=qwen3_moe backend={name:20}check, then start
  launch dry-run +recipe=qwen3_moe backend={other:12}show exactly what would run

{verbs}
Overrides are Hydra's: +recipe=NAME|FILE.yaml, +job=FILE.yaml, backend=NAME, model=NAME, hardware=NAME, task=NAME,
any field (parallel.tp=2, model.path=DIR, batch.global_batch_size=256), native arguments (backend.args.NAME=VALUE).
Every verb: --help, --json for programs, --config-dir DIR for your own recipes and groups.
Exit codes: 0 success, 1 the job is refused or failed, 2 the command line is wrong.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """A verb: where its function is, and one line for the help."""

    module: str
    doc: str


VERBS = {
    "run": Verb(
        module="launcher.cli.run", doc="start the job (-m: one job for each combination of values, in sequence)"
    ),
    "dry-run": Verb(module="launcher.cli.dry_run", doc="show exactly what would run"),
    "check": Verb(module="launcher.cli.check", doc="apply every rule before anything starts"),
    "doctor": Verb(module="launcher.cli.doctor", doc="check that everything a job or this machine needs is installed"),
    "estimate": Verb(module="launcher.cli.estimate", doc="memory and step time, without a device"),
    "calibrate": Verb(module="launcher.cli.calibrate", doc="a hardware file from short trainings on this machine"),
    "search": Verb(module="launcher.cli.search", doc="the parallel strategy with the least step time"),
    "balance": Verb(module="launcher.cli.balance", doc="layers and recomputation over pipeline stages"),
    "ui": Verb(module="launcher.cli.ui", doc="plan a job in the browser: check, estimate, search, compare, import"),
    "diff": Verb(module="launcher.cli.diff", doc="differences between files, jobs or backends, side by side"),
    "report": Verb(module="launcher.cli.report", doc="one HTML page: devices, memory, pipeline, arguments, findings"),
    "parity": Verb(module="launcher.cli.parity", doc="the same training on several backends, measured and compared"),
    "list": Verb(module="launcher.cli.list_", doc="recipes, models, hardware, backends with versions, or rules"),
    "explain": Verb(module="launcher.cli.explain", doc="meaning of a field, argument, variable or rule"),
    "import": Verb(module="launcher.cli.import_", doc="convert an existing script or configuration to a job"),
    "convert": Verb(module="launcher.cli.convert", doc="convert checkpoints to another format or layout, verified"),
    "tokenize": Verb(module="launcher.cli.tokenize", doc="conversations as token numbers and labels"),
    "args": Verb(module="launcher.cli.args", doc="the arguments that a backend accepts, from its own parser"),
    "schema": Verb(module="launcher.cli.schema", doc="JSON Schema of job files, for editors and other programs"),
    "completion": Verb(module="launcher.cli.completion", doc="script for completion in bash, zsh or fish"),
    "catalogue": Verb(module="launcher.cli.catalogue", doc="a checkout's own parser as a version of its backend"),
    "ps": Verb(module="launcher.cli.ps", doc="the runs that you started, with their state"),
    "status": Verb(module="launcher.cli.status", doc="one run: its nodes, its progress, why it failed"),
    "logs": Verb(module="launcher.cli.logs", doc="output of a run or one of its ranks (-f: follow)"),
    "stop": Verb(module="launcher.cli.stop", doc="end a run cleanly"),
    "resume": Verb(module="launcher.cli.resume", doc="start an ended run again, from its last complete checkpoint"),
    "clean": Verb(module="launcher.cli.clean", doc="remove what an ended run left outside its folder"),
}


def dispatch(words: list[str]) -> int:
    """Run the verb that the arguments name and return the exit code."""
    if not words or words[0] in ("-h", "--help", "help"):
        verbs = "".join(f"  {name:10} {verb.doc}\n" for name, verb in VERBS.items())
        print(HELP.format(verbs=verbs, name=BUILT_IN[0], other=BUILT_IN[-1]), end="")
        return 0 if words else 2
    if words[0] == "--version":
        from launcher import __version__

        print(__version__)
        return 0
    from launcher.cli.process import work_begins
    from launcher.cli.refusal import exit_code

    if not all(map(_is_text, words)):
        return exit_code("", lambda: _no_text(words), words)
    if words[0] not in VERBS and _is_bare_word(words[0]):
        return exit_code("", lambda: _unknown_verb(words[0], words[1:]), words)
    name, rest = (words[0], words[1:]) if words[0] in VERBS else ("run", words)

    def body() -> int:
        verb_main = import_module(VERBS[name].module).main
        work_begins(name)
        code = verb_main(rest)
        assert isinstance(code, int)
        return code

    return exit_code(name, body, rest)


def _is_bare_word(word: str) -> bool:
    return "=" not in word and not word.startswith(("-", "+", "~"))


def _is_text(word: str) -> bool:
    """Return whether an argument can be written to a file and used as a file name: valid UTF-8, no NUL."""
    return "\0" not in word and (word.isascii() or not any("\ud800" <= char <= "\udfff" for char in word))


def _no_text(words: list[str]) -> NoReturn:
    from launcher.cli.refusal import WrongUse
    from launcher.job.secret import without_secrets

    word = next(word for word in words if not _is_text(word))
    shown = ascii(without_secrets([word])[0])
    raise WrongUse(f"word {words.index(word) + 1} is not UTF-8 text: {shown}", "arguments and file names in UTF-8")


# Words that name no verb, but what several do.
_MEANT = {
    "port": ("launch import FILE --to BACKEND -o job.yaml", "launch check +job=FILE.yaml backend=BACKEND"),
}


def _unknown_verb(word: str, rest: list[str]) -> NoReturn:
    import shlex

    from launcher.cli.refusal import WrongUse
    from launcher.job.secret import without_secrets

    near = () if word in _MEANT else nearest(word, VERBS, limit=2, cutoff=0.5)
    shown = without_secrets(rest)
    works = [*_MEANT.get(word, ()), *(shlex.join(("launch", verb, *shown)) for verb in near)]
    works = works or [f"launch {'|'.join(VERBS)} …", "+recipe=NAME", "section.field=value", "launch --help"]
    raise WrongUse(f"{word!r} is neither a verb nor an override", *works)
