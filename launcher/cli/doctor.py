"""`launch doctor`: checks what a job, or this machine, needs; prints a table and how to install what is missing."""

import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from launcher.cli.options import composed, parse, parser, print_json
from launcher.executors.failure import CannotStart
from launcher.mapping.backend import backend_names, broken_backends, get_backend
from launcher.pipeline import judge
from launcher.plan.executor import broken_executors, get_executor
from launcher.report.findings import print_findings
from launcher.report.text_page import page_of
from launcher.runtime import planned

if TYPE_CHECKING:
    from launcher.doctor.check import Check

_EXAMPLES = """\
launch doctor                                       software of every backend on this machine
  launch doctor backend={npu:29}of one backend
  launch doctor +recipe=qwen3_8b backend={cuda:13}what a job needs here"""
_MARKS = {"ok": "ok", "warning": "warning", "error": "ERROR", "skipped": "-"}
_PAINTED = ("ok", "warning", "error")


def main(words: list[str]) -> int:
    """Show what is installed; exit 1 if a job cannot run natively, or no backend can."""
    made = parser("doctor", "Check that everything a job needs is installed before it starts.", _EXAMPLES)
    made.add_argument("--no-hosts", action="store_true", help="ask neither the queue or cluster nor the hosts of ssh")
    made.add_argument(
        "--nodes", action="store_true", help="Slurm: also ask the job's nodes, which a step of one minute allocates"
    )
    options = parse(made, words)
    names = _backends(options.overrides)
    if names is not None:
        broken = ({}, {}) if options.overrides else (broken_backends(), broken_executors())
        return _machine(names, *broken, as_json=options.json)
    return _of_job(options)


def _of_job(options: Namespace) -> int:
    from launcher.doctor.check import errors
    from launcher.doctor.examine import of_executor, of_hosts, of_job

    outcome = judge(composed(options))
    if not outcome.ok and not options.json:
        print_findings(outcome.findings, outcome.job)
    try:
        plan = planned(outcome) if outcome.ok else None
    except CannotStart:
        plan = None
    hosts = not options.no_hosts and (options.nodes or get_executor(outcome.job.cluster.executor).asks_hosts)
    checks = of_job(outcome, asks_hosts=hosts)
    if plan is not None and not options.no_hosts:
        accepted = of_executor(plan)
        checks += accepted
        if not errors(accepted) or get_executor(plan.start.executor).asks_hosts:
            checks += of_hosts(outcome, plan, allocate=options.nodes)
    ok = outcome.ok and not errors(checks)
    if options.json:
        findings = [finding.as_tree() for finding in outcome.findings]
        print_json({"ok": ok, "checks": [check.as_tree() for check in checks], "findings": findings})
    else:
        show(f"{outcome.job.name or 'job'} on {outcome.backend.title} {outcome.version}", checks)
    return 0 if ok else 1


def _backends(overrides: Sequence[str]) -> tuple[str, ...] | None:
    """Return the requested backends if there is no job; None if there is one."""
    if not overrides:
        return backend_names()
    chosen = [word.partition("=")[2] for word in overrides if word.startswith("backend=")]
    return tuple(chosen) if len(chosen) == len(overrides) and set(chosen) <= set(backend_names()) else None


def _machine(names: Sequence[str], backends: Mapping[str, str], executors: Mapping[str, str], *, as_json: bool) -> int:
    """Show what this machine has of the named backends, and the plug-ins that cannot be used, with the reason."""
    from launcher.doctor.check import ERROR, Check, errors
    from launcher.doctor.examine import of_machine

    found = {name: of_machine(get_backend(name)) for name in names}
    wrong = {
        "backends": {name: [Check(what=name, verdict=ERROR, found=why)] for name, why in backends.items()},
        "executors": {name: [Check(what=name, verdict=ERROR, found=why)] for name, why in executors.items()},
    }
    able = [name for name, checks in found.items() if not errors(checks)]
    if as_json:
        wrong["backends"] = {**found, **wrong["backends"]}
        trees = {
            kind: {name: [check.as_tree() for check in checks] for name, checks in each.items()}
            for kind, each in wrong.items()
        }
        print_json({"ok": bool(able), "can_run": able, **trees})
        return 0 if able else 1
    for name, checks in found.items():
        backend = get_backend(name)
        show(f"{backend.title} {backend.default_version} (backend={name})", checks)
        print()
    unusable = [check for each in wrong.values() for checks in each.values() for check in checks]
    if unusable:
        show("plug-ins that cannot be used", unusable)
        print()
    print(f"runs here natively: {', '.join(able) or 'none; runtime=rehearsal needs torch and megatron-core only'}")
    return 0 if able else 1


def show(title: str, checks: Sequence["Check"]) -> None:
    """Print checks as a table below a title."""
    print(f"# {title}")
    if not checks:
        return
    page = page_of(sys.stdout)
    width = max(len(check.what) for check in checks)
    for check in checks:
        mark = _MARKS[check.verdict]
        painted = page.paint(mark, check.verdict) if check.verdict in _PAINTED else mark
        first, *rest = page.wrap(check.found, f"{mark:8} {check.what:{width}}  ")
        print("\n".join([painted + first[len(mark) :], *rest]))
        if check.works and check.verdict != "ok":
            source = f"  [{check.source}]" if check.source else ""
            print("\n".join(page.wrap(f"{check.works}{source}", f"{'':9}  works: ", " " * 13)))
    sys.stdout.flush()
