"""Converts all errors of verbs to text or one JSON document, and an exit code."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from launcher.records import dataclass

if TYPE_CHECKING:
    from launcher.compose.errors import Mistake
    from launcher.job import Job
    from launcher.job.finding import Finding

# Exit codes: the job is refused or failed; the command line is wrong (not a valid job, file or option).
REFUSED, WRONG = 1, 2
# Up to this many overrides are written out; of more than that, only the values.
_FEW = 3
# Problems of one conversion that are shown.
_SCREEN = 20
# Verbs whose exit code 1 means a difference: their errors exit with 2, as in diff(1).
_ONE_IS_AN_ANSWER = ("diff",)
# Verbs that check sizes and hardware themselves: impossible ones are a refused job, not a wrong command line.
_JUDGES_SIZES = ("estimate",)


class NotDone(Exception):
    """The request is refused or failed: exit code 1.

    Attributes:
        message: one sentence for the user, without the name of the verb; empty: the findings are the message.
        works: alternatives that would work.
        findings: findings of the rules, in addition to the message or instead of it.
        job: the job that they are about.
    """

    code = REFUSED
    rule = "CMD-REFUSED"

    def __init__(
        self,
        message: str = "",
        *works: str,
        findings: Sequence["Finding"] = (),
        job: "Job | None" = None,
        rule: str = "",
    ) -> None:
        super().__init__(message)
        self.message, self.works, self.findings, self.job = message, works, tuple(findings), job
        self.rule = rule or self.rule


class WrongUse(NotDone):
    """The command line is wrong, whatever the job: exit code 2."""

    code = WRONG
    rule = "CMD-USAGE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Output of a refusal: its exit code, its findings, and its text.

    Attributes:
        lines: text for standard error; empty: the findings in their usual format.
        job: the job that the findings are about, for the values of their fields and where these were set.
        more: entries of the JSON document besides `ok` and `findings`.
    """

    code: int
    findings: tuple["Finding", ...]
    lines: tuple[str, ...] = ()
    job: "Job | None" = None
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def tree(self) -> dict[str, Any]:
        """Return the JSON document of the refusal."""
        return {"ok": False, **self.more, "findings": [finding.as_tree() for finding in self.findings]}

    def show(self) -> None:
        """Print the refusal as text to standard error."""
        from launcher.report.findings import print_findings

        if self.lines:
            print("\n".join(_on_page(self.lines)), file=sys.stderr)
        else:
            print_findings(self.findings, self.job)


def _on_page(lines: Sequence[str]) -> Iterator[str]:
    """Yield lines wrapped to the terminal; those of findings, which are wrapped already, stay as they are."""
    from launcher.report.text_page import page_of
    from launcher.syntax import shortened

    page = page_of(sys.stderr)
    for line in (part for each in lines for part in each.split("\n")):
        if "\x1b" in line:
            yield line
        else:
            yield from page.wrapped([line if _is_offer(line) else shortened(line)])


def _is_offer(line: str) -> bool:
    """Return whether a line is to be copied: one that repeats a text of thousands of characters is not."""
    from launcher.syntax import LONGEST_MESSAGE

    return line.lstrip().startswith("works: ") and len(line) < LONGEST_MESSAGE


def exit_code(verb: str, body: Callable[[], int], words: Sequence[str]) -> int:
    """Run a verb; convert its errors to text, or with --json to one document, and the exit code."""
    try:
        return body()
    except Exception as error:
        refusal = refusal_of(error, verb)
        if refusal is None:
            raise
        code = WRONG if verb in _ONE_IS_AN_ANSWER else refusal.code
        own = list(words[: words.index("--")] if "--" in words else words)
        if not wants_json(own):
            sys.stdout.flush()
            refusal.show()
        else:
            from launcher.cli.streams import json_text

            many = "-m" in own or "--multirun" in own
            print(json_text([refusal.tree] if many else refusal.tree))
        return code


def _finding_without(finding: "Finding") -> "Finding":
    from launcher.job.secret import redacted

    fixes = tuple(replace(fix, overrides=tuple(map(redacted, fix.overrides))) for fix in finding.fixes)
    return replace(finding, message=redacted(finding.message), fixes=fixes)


def wants_json(words: Sequence[str]) -> bool:
    """Return whether the arguments request JSON; they may be too malformed to be parsed."""
    return "--json" in words or "--format=json" in words or ("--format", "json") in pairwise(words)


def refusal_of(error: BaseException, verb: str = "") -> Refusal | None:
    """Return the refusal for an exception; None: it is an internal error of this program."""
    for kind in type(error).__mro__:
        render = _KINDS.get(f"{kind.__module__}.{kind.__qualname__}")
        refusal = None if render is None else render(error, f"launch {verb}".strip())
        if refusal is not None:
            return _without_secrets(refusal)
    refusal = _of_plugin(error, f"launch {verb}".strip())
    return None if refusal is None else _without_secrets(refusal)


def _of_plugin(error: BaseException, name: str) -> Refusal | None:
    """Return the refusal for an exception that another distribution's code raised; None: it was ours."""
    from launcher import plugins

    plugin = plugins.culprit(error)
    if not plugin:
        return None
    from launcher.cli.internal_error import write_details

    details = write_details(error, name)
    message = f"{plugin} failed: {plugins.reason(error)}" + (f"; details: {details}" if details else "")
    return _own(NotDone(message, rule="PLUGIN"), name)


def _broken_plugin(error: Any, name: str) -> Refusal:
    return _own(NotDone(str(error), rule="PLUGIN"), name)


def _without_secrets(refusal: Refusal) -> Refusal:
    """Return a refusal without secrets: messages quote arguments, files, and messages of queues and libraries."""
    from launcher.job.secret import redacted, redacted_tree

    findings = tuple(_finding_without(each) for each in refusal.findings)
    more = {name: redacted_tree(value) for name, value in refusal.more.items()}
    return replace(refusal, findings=findings, lines=tuple(map(redacted, refusal.lines)), more=more)


def _verb(name: str) -> str:
    return name.partition(" ")[2]


def _own(error: NotDone, name: str) -> Refusal:
    said = [f"{name}: {error.message}"] if error.message else []
    if error.works:
        said.append(f"works: {' · '.join(error.works)}")
    lines = [*_formatted(error.findings, error.job), *_safe(said)]
    found = error.findings
    if error.message and all(finding.severity != "error" for finding in found):
        found = (_finding(error.rule, error.message, works=error.works), *found)
    more = {"message": error.message} if error.message else {}
    return Refusal(code=error.code, findings=found, lines=tuple(lines), more=more)


def _safe(lines: Sequence[str]) -> tuple[str, ...]:
    """Return lines of a message, which quotes files and arguments, without characters that control a terminal."""
    from launcher.syntax import escaped

    return tuple(escaped(part) for line in lines for part in line.split("\n"))


def _formatted(findings: Sequence["Finding"], job: "Job | None") -> Iterator[str]:
    from launcher.report.findings import format_finding
    from launcher.report.text_page import page_of

    yield from (format_finding(finding, job, page_of(sys.stderr)) for finding in findings)


def _composing(error: Any, name: str) -> Refusal:
    from launcher.cli.native_names import with_native_names

    found = with_native_names(error)
    lines: list[str] = []
    for mistake in found:
        where = f"  ({mistake.where})" if mistake.where and mistake.where not in mistake.what else ""
        lines.append(f"error {mistake.rule}  {mistake.what}{where}")
        if mistake.works:
            shown = mistake.fixes if len(mistake.fixes) <= _FEW else mistake.works
            lines.append(f"  works: {' · '.join(shown)}")
    mistakes = [{"what": m.what, "where": m.where, "works": list(m.works)} for m in found]
    findings = tuple(_of_mistake(mistake) for mistake in found)
    code = REFUSED if error.impossible and _verb(name) in _JUDGES_SIZES else WRONG
    return Refusal(code=code, findings=findings, lines=_safe(lines), more={"mistakes": mistakes})


def _of_mistake(mistake: "Mistake") -> "Finding":
    where = f" ({mistake.where})" if mistake.where and mistake.where not in mistake.what else ""
    fields = (mistake.field,) if mistake.field else ()
    return _finding(mistake.rule, f"{mistake.what}{where}", works=mistake.fixes, fields=fields)


def _importing(error: Any, name: str) -> Refusal:
    from launcher.cli.notes import refusal_lines

    mistakes = [
        {"what": note.message, "where": note.where, "works": list(note.works)}
        | ({"details": list(note.details)} if note.details else {})
        for note in error.notes
    ]
    texts = (" ".join((note.message, "; ".join(note.details))).rstrip() for note in error.notes)
    findings = tuple(
        _finding("IMPORT", f"{note.where}: {text}" if note.where else text, works=note.works)
        for note, text in zip(error.notes, texts, strict=True)
    )
    lines = refusal_lines(error, with_partial=_verb(name) != "check")
    return Refusal(code=REFUSED, findings=findings, lines=_safe(lines), more={"mistakes": mistakes})


def _converting(code: int) -> Callable[[Any, str], Refusal]:
    def render(error: Any, name: str) -> Refusal:
        findings = tuple(_finding("CONVERT", problem) for problem in error.problems)
        lines = tuple(f"error  {problem}" for problem in error.problems)
        if len(lines) > _SCREEN:  # the last line has the alternatives
            left = f"  … and {len(lines) - _SCREEN} more (all of them: --json)"
            lines = (*lines[: _SCREEN - 1], left, lines[-1])
        return Refusal(code=code, findings=findings, lines=_safe(lines), more={"problems": list(error.problems)})

    return render


def _about_run(error: Any, name: str) -> Refusal:
    return _own(NotDone(str(error), rule="RUN-STATE"), name)


def _start(error: Any, name: str) -> Refusal:
    return _own(NotDone(str(error), rule="RUN-START"), name)


def _output(error: Any, name: str) -> Refusal:
    works = () if error.free is None else (str(error.free),)
    return _own(NotDone(str(error), *works, rule="CMD-OUTPUT"), name)


def _no_backend(error: Any, name: str) -> Refusal:
    from launcher.mapping.backend import backend_names

    return _own(WrongUse(f"no backend {str(error)!r}", *backend_names()), name)


def _no_executor(error: Any, name: str) -> Refusal:
    from launcher.plan.executor import executor_names

    return _own(WrongUse(f"no executor {str(error)!r}", *executor_names()), name)


def _no_version(error: Any, name: str) -> Refusal:
    return _own(WrongUse(str(error)), name)


def _file(error: OSError, name: str) -> Refusal | None:
    if error.filename is None:
        return None
    from launcher.cli.internal_error import MACHINE

    works = [MACHINE[error.errno]] if error.errno in MACHINE else []
    return _own(NotDone(f"{error.filename}: {error.strerror}", *works, rule="CMD-FILE"), name)


def _no_home(error: RuntimeError, name: str) -> Refusal | None:
    """Return the refusal for the error that pathlib raises for `~name/…`."""
    if not str(error).startswith("Could not determine home"):
        return None
    return _own(NotDone("~ or ~NAME: there is no such user, or no home directory", "the full path"), name)


def _budget(error: Any, name: str) -> Refusal:
    return _own(NotDone(str(error), error.works, rule="CMD-BUDGET"), name)


def _finding(rule: str, message: str, *, works: Sequence[str] = (), fields: Sequence[str] = ()) -> "Finding":
    from launcher.job.finding import Finding, Fix

    fixes = tuple(Fix(overrides=(each,)) for each in works)
    return Finding(rule=rule, severity="error", message=message, fields=tuple(fields), fixes=fixes, source="launch")


def _judged(code: int) -> Callable[[Any, str], Refusal]:
    def render(error: Any, name: str) -> Refusal:
        findings = (error.finding,) if hasattr(error, "finding") else tuple(error.findings)
        return Refusal(code=code, findings=findings, job=getattr(error, "job", None))

    return render


# By name, so that no verb imports the modules of others; tests/cli/test_refusals.py checks the names.
_KINDS: Mapping[str, Callable[[Any, str], Refusal | None]] = {
    "launcher.cli.refusal.NotDone": _own,
    "launcher.compose.errors.ComposeError": _composing,
    "launcher.mapping.backend.UnknownBackend": _no_backend,
    "launcher.mapping.backend.UnknownVersion": _no_version,
    "launcher.plugins.BrokenPlugin": _broken_plugin,
    "launcher.plan.executor.UnknownExecutor": _no_executor,
    "launcher.pipeline.Refused": _judged(WRONG),
    "launcher.rehearse.refusal.RehearsalRefused": _judged(REFUSED),
    "launcher.importing.notes.ImportRefused": _importing,
    "launcher.convert.errors.WrongWord": _converting(WRONG),
    "launcher.convert.containers.errors.ConvertError": _converting(REFUSED),
    "launcher.observe.find.UnknownRun": _about_run,
    "launcher.job.migrations.WrongSchema": _about_run,
    "launcher.observe.logs.NoSuchRank": _about_run,
    "launcher.observe.stop.CannotStop": _about_run,
    "launcher.observe.clean.CannotClean": _about_run,
    "launcher.observe.resume.CannotResume": _about_run,
    "launcher.executors.failure.CannotStart": _start,
    "launcher.outputs.files.OutputRefused": _output,
    "launcher.budgets.BeyondBudget": _budget,
    "builtins.OSError": _file,
    "builtins.RuntimeError": _no_home,
}
