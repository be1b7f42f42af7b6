"""Checks that all hosts of a plan have the same software: nodes that differ fail late, or train something else."""

import json
import shlex
import sys
from collections import Counter
from collections.abc import Iterator, Mapping

from launcher.doctor.check import ERROR, OK, WARNING, Check
from launcher.executors.failure import CannotStart
from launcher.mapping.backend import Backend
from launcher.plan import LaunchPlan
from launcher.plan.executor import get_executor

_ASK = """import json, platform, subprocess, sys
from importlib.metadata import PackageNotFoundError, version
found = {"python": platform.python_version()}
for word in sys.argv[1:]:
    kind, _, name = word.partition(":")
    try:
        if kind == "package": found[name] = version(name)
        else:
            git = ["git", "-C", name, "rev-parse", "HEAD"]
            found[name] = subprocess.run(git, capture_output=True, text=True).stdout.strip() or "not a checkout"
    except (PackageNotFoundError, OSError): found[name] = "missing"
print(json.dumps(found))"""


def same_everywhere(
    plan: LaunchPlan, backend: Backend, backend_version: str, environ: Mapping[str, str]
) -> Iterator[Check]:
    """Yield differences between the hosts of a plan: Python, the backend's packages and checkouts."""
    needed = [each for each in backend.support if each.holds(backend_version, None)]
    words = [f"package:{each.name}" for each in needed if each.kind == "package"]
    words += [f"checkout:{environ[each.name]}" for each in needed if each.kind == "checkout" and each.name in environ]
    python = plan.start.python or sys.executable
    script = " ".join(shlex.quote(word) for word in (python, "-c", _ASK, *words))
    try:
        answers = get_executor(plan.start.executor).hosts(plan, script)
    except CannotStart as error:
        yield Check(what="hosts", verdict=ERROR, found=str(error))
        return
    reports: dict[str, dict[str, str]] = {}
    for host, done in answers:
        try:
            reports[host] = json.loads(done.stdout.splitlines()[-1])
        except (ValueError, IndexError):
            lines = [line for line in done.stderr.splitlines() if line.strip()]
            reason = lines[-1] if lines else f"exit code {done.returncode}"
            yield Check(
                what=host, verdict=WARNING, found=f"cannot be queried: {reason}", works=f"ssh {host} {python} -V"
            )
    differ = list(_different(reports))
    yield from differ
    if reports and not differ:
        yield Check(what="hosts", verdict=OK, found=f"the same software on {len(reports)} hosts")


def _different(reports: Mapping[str, Mapping[str, str]]) -> Iterator[Check]:
    """Yield each name whose version is not the same on all hosts, with the hosts that differ from most."""
    for name in dict.fromkeys(name for found in reports.values() for name in found):
        count = Counter(found.get(name, "missing") for found in reports.values())
        if len(count) < 2:
            continue
        usual = count.most_common(1)[0][0]
        others = [f"{host} {found.get(name, 'missing')}" for host, found in reports.items() if found.get(name) != usual]
        yield Check(
            what=f"{name} on all hosts",
            verdict=WARNING if name == "python" else ERROR,
            found=f"{usual} on most, {', '.join(others)}",
            works=f"the same {name} on every host",
        )
