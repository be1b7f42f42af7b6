"""`launch check`: applies every rule before any process starts."""

import argparse
import os
import shlex
import sys
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from launcher.cli.check_files import FORMATS, SUFFIXES, check_files, is_many
from launcher.cli.multirun import Answer, add_option, answered
from launcher.cli.notes import print_remark
from launcher.cli.options import composed, parse, parser, writable, write_file
from launcher.cli.refusal import WrongUse
from launcher.job import Job
from launcher.job.file_text import job_file_text
from launcher.job.finding import Finding
from launcher.job.secret import without_secrets
from launcher.outputs.kinds import FINDINGS, JOB
from launcher.pipeline import judge, repair_of
from launcher.report.findings import headline, print_findings
from launcher.report.text_page import Page, page_of
from launcher.rules.engine import ordered
from launcher.syntax import PACKAGE, escaped
from launcher.terminal import counted

if TYPE_CHECKING:
    from launcher.importing.imported import Imported
    from launcher.mapping.backend import Backend
    from launcher.rules.repair import Repair

_VERSION = "backend.version="


def main(words: list[str]) -> int:
    """Check a job, or an existing file; exit 0 without errors, 1 with errors, 2 for a wrong command line."""
    made = parser(
        "check",
        "Apply every rule to a job, or to a script or YAML that exists already, and show all findings at once.",
        "launch check +recipe=qwen3_moe backend={npu}\n  launch check train.sh parallel.tp=4\n"
        "  launch check 'scripts/**/*.sh' recipes/ --format sarif -o check.sarif\n"
        "  launch check scripts/ --changed=origin/main --format github",
    )
    made.add_argument("--fix", action="store_true", help="show the overrides with which the job passes")
    made.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="with --fix: write them to a file, for +strategy=FILE; "
        "with --format sarif or junit: write the document to a file",
    )
    made.add_argument(
        "--deep", action="store_true", help="also build it with the real megatron-core, at full world size"
    )
    made.add_argument(
        "--format",
        choices=FORMATS,
        help="for files, folders and patterns, those without a training skipped: sarif (code scanning), github "
        "(annotations of a pull request), junit (test results), text",
    )
    made.add_argument(
        "--changed",
        nargs="?",
        const="HEAD",
        metavar="REF",
        help="only files that differ from the branch point of a git revision (default: HEAD), and untracked ones",
    )
    add_option(made)
    options = parse(made, words)
    if is_many(options):
        writable("-o", options.output, FINDINGS, *SUFFIXES.get(options.format, ()))
        return check_files(options)
    if options.output and (options.multirun or not options.fix):
        raise WrongUse("-o writes the fixes of one job", "launch check OVERRIDES --fix -o fixes.yaml")
    writable("-o", options.output, JOB, ".yaml", ".yml")
    return answered(options, _existing if _file(options) else _composed)


def _file(options: argparse.Namespace) -> str | None:
    """Return the file to check, if the first argument is one."""
    words = options.overrides
    is_file = bool(words) and not options.multirun and "=" not in words[0] and os.path.isfile(words[0])
    return words[0] if is_file else None


def _existing(options: argparse.Namespace) -> Answer:
    from launcher.importing.read_file import job_group

    path, *words = options.overrides
    group = job_group(path)
    if group is None:
        return _imported(options, path, words)
    options.overrides = [f"+{group}={path}", *words]
    return _composed(options)


def _composed(options: argparse.Namespace) -> Answer:
    job = composed(options)
    outcome = judge(job)
    name, label = escaped(job.name or "job"), f" on {outcome.backend.title} {outcome.version}"
    findings = list(outcome.findings)
    if options.deep and outcome.ok:
        from launcher.rehearse.deep import deep_findings

        findings = ordered([*findings, *deep_findings(outcome)])
    return _show(options, findings, outcome.job, (name, label), job if options.fix else None)


def _imported(options: argparse.Namespace, path: str, words: list[str]) -> Answer:
    from launcher.api import import_file
    from launcher.importing.imported import DEVICES
    from launcher.importing.judge import judge_existing, located
    from launcher.importing.overrides import job_with_overrides
    from launcher.importing.presets import with_known_model
    from launcher.mapping.backend import get_backend

    imported = import_file(path)
    backend = get_backend(imported.backend)
    said = _version_of(words, backend)
    if said is not None:
        # It says what the file is written for: no other arguments are judged.
        words = [word for word in words if not word.startswith(_VERSION)]
        imported = import_file(path, backend=backend.name, version=said)
    label = escaped(path), f" for {backend.title} {imported.version}"
    if words:
        job = job_with_overrides(imported, path, words, options.config_dir)
        outcome = judge(job)
        changes = escaped(" ".join(without_secrets(words)))
        changed = escaped(path), f" with {changes} on {outcome.backend.title} {outcome.version}"
        answer = _show(options, list(outcome.findings), outcome.job, changed, job if options.fix else None)
        return _with_remarks(answer, options, path, imported)
    job, _ = with_known_model(imported)
    findings = list(judge_existing(imported).findings)
    assumed = () if imported.devices_specified else DEVICES
    answer = _show(options, findings, located(imported), label, job if options.fix else None, assumed)
    return _with_remarks(answer, options, path, imported)


def _with_remarks(answer: Answer, options: argparse.Namespace, path: str, imported: "Imported") -> Answer:
    """Return the answer with what the import remarks; remarks with a rule are among the findings."""
    remarks = [str(note) for note in imported.warnings if not note.rule]
    if remarks and not options.json:
        print_remark(
            "check", f"{counted(len(remarks), 'remark')} on how it was read: launch import {shlex.quote(path)}"
        )
    return replace(answer, tree={**answer.tree, "remarks": remarks})


def _version_of(words: list[str], backend: "Backend") -> str | None:
    """Return the version of the file's backend that overrides name; None: none, or one that is not known."""
    said = [word.removeprefix(_VERSION) for word in words if word.startswith(_VERSION)]
    if not said or any(word.startswith("backend=") for word in words):
        return None
    return said[-1] if said[-1] in (*backend.versions, *backend.aliases) else None


def _show(
    options: argparse.Namespace,
    findings: list[Finding],
    job: Job,
    label: tuple[str, str],
    broken: Job | None,
    assumed: Collection[str] = (),
) -> Answer:
    errors = sum(finding.severity == "error" for finding in findings)
    tree: dict[str, object] = {"ok": not errors, "findings": [finding.as_tree() for finding in findings]}
    if not options.json:
        print("\n".join(headline(*label, findings, page_of(sys.stdout))))
        print_findings(findings, job, sys.stdout)
    if broken is not None:
        tree["fixed"] = _fix(broken, options, assumed)
    return Answer(code=1 if errors else 0, tree=tree)


def _fix(job: Job, options: argparse.Namespace, assumed: Collection[str]) -> dict[str, object]:
    found = repair_of(job, assumed)
    if options.output:
        _write(Path(options.output), found.as_tree())
    if not options.json:
        print("\n".join(_fix_lines(found, job, options.output, page_of(sys.stdout))))
    return found.as_answer()


def _fix_lines(found: "Repair", job: Job, output: str | None, page: Page) -> Iterator[str]:
    from launcher.report.strategy import written_text

    yield from page.join(found.overrides or ["none found"], "fixes: ", "  ", sign=" ")
    if found.affects_training:
        yield from page.join(found.affects_training, "  changes training: ", "    ", sign=", ")
    if found.asks:
        yield from page.join(found.asks, "  specify: ", "    ", sign=" ")
    if output:
        yield from page.wrap(written_text(output, found.values, job), "", "  ")
    for finding in found.left:
        yield from page.wrap(f"not fixed: {finding.rule}: {finding.message}", "  ", "    ")


def _write(path: Path, tree: dict[str, object]) -> None:
    write_file(path, f"{PACKAGE}\n# What `launch check --fix` changed.\n{job_file_text(tree)}", JOB)
