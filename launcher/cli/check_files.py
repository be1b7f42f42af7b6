"""`launch check` of many files: selects them, checks each, and shows the findings in one format."""

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from launcher.cli.checked_file import checked_file
from launcher.cli.file_selection import changed, is_path, is_pattern, reference, repository_root, selected
from launcher.cli.options import print_json, write_file
from launcher.cli.refusal import WrongUse
from launcher.job.finding import Finding
from launcher.outputs.kinds import FINDINGS
from launcher.report.checked import CheckedFile, PlacedFinding, totals
from launcher.report.findings import print_findings
from launcher.report.github import annotations
from launcher.report.junit import junit
from launcher.report.sarif import sarif
from launcher.report.text_page import page_of
from launcher.syntax import escaped

FORMATS = ("text", "sarif", "github", "junit")
_DOCUMENTS = ("sarif", "junit")
# Files with errors for which values that work are searched: the search takes longer than the check.
_WITH_FIXES = 10
SUFFIXES = {"sarif": (".sarif", ".json"), "junit": (".xml",)}


def is_many(options: argparse.Namespace) -> bool:
    """Return whether the arguments name files in the plural: several, a folder, a pattern, or a format for them."""
    paths = [word for word in options.overrides if is_path(word)]
    if options.changed is not None or options.format is not None:
        return True
    return len(paths) > 1 or any(
        os.path.isdir(word) or (is_pattern(word) and not os.path.exists(word)) for word in paths
    )


def check_files(options: argparse.Namespace) -> int:
    """Check every file; exit 0 without errors, 1 with errors, 2 for a wrong command line."""
    _refuse_wrong(options)
    paths = [word for word in options.overrides if is_path(word)]
    words = [word for word in options.overrides if not is_path(word)]
    revision = None
    if options.changed is not None:
        revision, paths = reference(options.changed, paths)
    if not paths and revision is None:
        raise WrongUse(f"--format {options.format} needs files", "launch check 'scripts/**/*.sh' recipes/")
    names = selected(paths or ["."])
    if revision is not None:
        differing = changed(revision)
        names = [name for name in names if str(Path(name).resolve()) in differing]
    streamed = not options.json and options.format not in _DOCUMENTS
    files: list[CheckedFile] = []
    for name in names:
        wrong = sum(not file.ok for file in files)
        files.append(checked_file(name, words, options.config_dir, fixes=wrong < _WITH_FIXES))
        if streamed and options.format != "github":
            _print(files[-1])
    _finish(options, files, revision)
    return 0 if all(file.ok for file in files) else 1


def _refuse_wrong(options: argparse.Namespace) -> None:
    for flag, given in (("-m", options.multirun), ("--fix", options.fix), ("--deep", options.deep)):
        if given:
            raise WrongUse(f"{flag} is for one job or file", f"launch check FILE {flag}")
    if options.json and options.format is not None:
        raise WrongUse("--json and --format are two formats of the same output", "--json", f"--format {options.format}")
    if options.output and options.format not in _DOCUMENTS:
        raise WrongUse(f"-o takes a document: --format {' or '.join(_DOCUMENTS)}", "--format sarif -o check.sarif")


def _finish(options: argparse.Namespace, files: Sequence[CheckedFile], revision: str | None) -> None:
    """Print what is known at the end only; a document leaves standard output to itself."""
    since = f", of those changed since {escaped(revision)}" if revision is not None else ""
    summary = f"launch check: {totals(files)}{since}"
    if options.json:
        print_json({"ok": all(file.ok for file in files), "files": [file.as_tree() for file in files]})
    elif options.format in _DOCUMENTS:
        document = _DOCUMENT[options.format](files)
        if options.output:
            write_file(options.output, document, FINDINGS)
        else:
            sys.stdout.write(document)
        print(summary, file=sys.stderr)
    else:
        for line in annotations(files, repository_root()) if options.format == "github" else ():
            print(line)
        print("\n".join(page_of(sys.stdout).wrap(summary, "", "  ")))


def _sarif(files: Sequence[CheckedFile]) -> str:
    return json.dumps(sarif(files, repository_root()), indent=1, ensure_ascii=False) + "\n"


_DOCUMENT: dict[str, Callable[[Sequence[CheckedFile]], str]] = {"sarif": _sarif, "junit": junit}


def _print(file: CheckedFile) -> None:
    """Print the errors and warnings of a file; what the backend alters by itself is in `--json`."""
    shown = [each for each in file.found if each.finding.severity != "change"]
    if not shown:
        return
    label = f" ({file.label})" if file.label else ""
    page = page_of(sys.stdout)
    print("\n".join(page.wrap(escaped(f"== {file.path}{label}"), "", "  ")), flush=True)
    print_findings(list(map(_with_place, shown)), file.job, sys.stdout)


def _with_place(each: PlacedFinding) -> Finding:
    """Return a finding that names its line, where it names no field whose place is shown."""
    if each.finding.fields or not each.place.line:
        return each.finding
    return replace(each.finding, message=f"{each.place}: {each.finding.message}")
