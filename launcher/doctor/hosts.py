"""Checks on the hosts of a plan: the backend's software there, and that folders, clocks and versions agree."""

import contextlib
import json
import os
import shlex
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import CompletedProcess
from tempfile import NamedTemporaryFile

from launcher.doctor.check import ERROR, OK, WARNING, Check
from launcher.doctor.software import software
from launcher.executors.failure import CannotStart
from launcher.installed import Installed
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
            git = ["git", "-C", name]
            head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
            changed = head and subprocess.run([*git, "diff", "HEAD"], capture_output=True).stdout
            if changed:
                import hashlib
                head += "+" + hashlib.sha256(changed).hexdigest()[:8]
            found[name] = head or "not a checkout"
    except (PackageNotFoundError, OSError): found[name] = "missing"
print(json.dumps(found))"""
# Seconds by which clocks may differ: leases of file systems and tickets of Kerberos allow five minutes, and the order
# in which nodes ended and checkpoints were written is of seconds.
_SKEW_SECONDS = 10
# A new file that NFS does not show yet appears with the next look.
_LOOKS = 3
_MISSING = "missing"


@dataclass(slots=True, kw_only=True)
class _Report:
    """What a host says of itself.

    Attributes:
        versions: versions of Python, packages and checkouts; empty: its Python cannot be asked.
        problem: why it cannot.
        clock: seconds since 1970; None: it does not say.
        unshared: folders that are other folders there.
    """

    versions: dict[str, str] = field(default_factory=dict)
    problem: str = ""
    clock: float | None = None
    unshared: list[str] = field(default_factory=list)


def of_nodes(
    plan: LaunchPlan, backend: Backend, backend_version: str, environ: Mapping[str, str], *, device: str | None = None,
    allocate: bool = False
) -> Iterator[Check]:  # fmt: skip
    """Yield what is missing on the hosts of a plan, and differences between them; nothing if they are not known.

    Args:
        device: kind of device that the job runs on.
        allocate: hosts that only a queue knows are allocated for the question.
    """
    needed = [each for each in backend.support if each.holds(backend_version, None)]
    words = [f"package:{each.name}" for each in needed if each.kind == "package"]
    words += [f"checkout:{environ[each.name]}" for each in needed if each.kind == "checkout" and each.name in environ]
    python = plan.start.python or sys.executable
    executor = get_executor(plan.start.executor)
    with _shared_files(plan) as files:
        script = "\n".join([*_questions(files), shlex.join((python, "-c", _ASK, *words))])
        began = time.time()
        try:
            answers = (executor.probe if allocate else executor.hosts)(plan, script)
        except CannotStart as error:
            yield Check(what="hosts", verdict=ERROR, found=str(error))
            return
        window = (began, time.time())
    reports = {host: _report(done, files) for host, done in answers}
    for host, report in reports.items():
        if report.problem:
            works = f"ssh {host} {python} -V" if executor.asks_hosts else f"{python} on every node"
            yield Check(what=host, verdict=WARNING, found=f"cannot be queried: {report.problem}", works=works)
    asked = {host: report.versions for host, report in reports.items() if report.versions}
    if asked:
        host, versions = next(iter(asked.items()))
        known = {name: text for name, text in versions.items() if text != _MISSING}
        there = Installed(versions=known, other_python=f"{python} on {host}")
        yield from software(backend, backend_version, device=device, environ=environ, found=there)
    differ = [*_unshared(reports), *_skewed(reports, window), *_different(asked)]
    yield from differ
    if asked and not differ:
        yield Check(what="hosts", verdict=OK, found=f"the same software on {len(asked)} hosts")


@contextlib.contextmanager
def _shared_files(plan: LaunchPlan) -> Iterator[dict[str, Path]]:
    """Write a file into each folder that all nodes share, while they are asked for it; none where that is not allowed.

    Yields:
        The text of each file, and the file.
    """
    output = Path(plan.output_dir).absolute()
    while not output.is_dir() and output != output.parent:
        output = output.parent
    with contextlib.ExitStack() as stack:
        files: dict[str, Path] = {}
        for folder in dict.fromkeys((Path(os.getcwd()), output)):
            with contextlib.suppress(OSError):  # not ours to write to: it is not asked for
                file = stack.enter_context(NamedTemporaryFile("w", dir=folder, prefix=".launch-doctor-"))
                token = f"{os.getpid()}.{time.time_ns()}"
                file.write(token)
                file.flush()
                files[token] = Path(file.name)
        yield files


def _questions(files: Mapping[str, Path]) -> Iterator[str]:
    yield 'echo "@clock $(date +%s.%N)"'
    for file in files.values():
        name = shlex.quote(str(file))
        looks = " ".join(map(str, range(_LOOKS)))
        yield f'for _ in {looks}; do [ -e {name} ] && break; sleep 1; done; echo "@file $(cat -- {name} 2>/dev/null)"'


def _report(done: "CompletedProcess[str]", files: Mapping[str, Path]) -> _Report:
    report = _Report()
    lines = done.stdout.splitlines()
    texts = [line.partition(" ")[2].strip() for line in lines if line.startswith("@file")]
    if texts:
        report.unshared = [str(file.parent) for token, file in files.items() if token not in texts]
    with contextlib.suppress(ValueError, IndexError, StopIteration):  # BusyBox's date has no %N
        report.clock = float(next(line for line in lines if line.startswith("@clock")).split()[1])
    try:
        versions = json.loads(next(line for line in reversed(lines) if line.startswith("{")))
        report.versions = {str(name): str(text) for name, text in versions.items()}
    except (ValueError, StopIteration):
        said = [line for line in [*lines, *done.stderr.splitlines()] if line.strip() and not line.startswith("@")]
        report.problem = said[-1] if said else f"exit code {done.returncode}"
    return report


def _unshared(reports: Mapping[str, _Report]) -> Iterator[Check]:
    folders = dict.fromkeys(folder for report in reports.values() for folder in report.unshared)
    for folder in folders:
        where = [host for host, report in reports.items() if folder in report.unshared]
        yield Check(
            what="shared folder",
            verdict=ERROR,
            found=f"{folder} is another folder, or none, on {', '.join(where)}",
            works="launch from, and an output_dir in, a folder that all hosts share",
        )


def _skewed(reports: Mapping[str, _Report], window: tuple[float, float]) -> Iterator[Check]:
    """Yield the hosts whose clock was outside of the time, here, in which they were asked."""
    began, ended = window
    for host, report in reports.items():
        if report.clock is None or began - _SKEW_SECONDS <= report.clock <= ended + _SKEW_SECONDS:
            continue
        skew = report.clock - (began if report.clock < began else ended)
        yield Check(
            what=f"clock of {host}",
            verdict=WARNING,
            found=f"{abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} this machine",
            works="the same time on all hosts (NTP, chrony)",
        )


def _different(reports: Mapping[str, Mapping[str, str]]) -> Iterator[Check]:
    """Yield each name whose version is not the same on all hosts, with the hosts that differ from most."""
    for name in dict.fromkeys(name for found in reports.values() for name in found):
        count = Counter(found.get(name, _MISSING) for found in reports.values())
        if len(count) < 2:
            continue
        usual = count.most_common(1)[0][0]
        others = [f"{host} {found.get(name, _MISSING)}" for host, found in reports.items() if found.get(name) != usual]
        yield Check(
            what=f"{name} on all hosts",
            verdict=WARNING if name == "python" else ERROR,
            found=f"{usual} on most, {_few(others)}",
            works=f"the same {name} on every host",
        )


def _few(words: Sequence[str], most: int = 8) -> str:
    return ", ".join(words) if len(words) <= most else f"{', '.join(words[:most])} and {len(words) - most} more"
