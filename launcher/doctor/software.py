"""Checks that the backend is installed, in the version of the arguments, with compatible dependencies."""

import dataclasses
import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from launcher.catalogue.requirements import Needed
from launcher.catalogue.versions import version_key
from launcher.doctor.check import ERROR, OK, SKIPPED, WARNING, Check
from launcher.installed import Installed, installed
from launcher.mapping.backend import Backend
from launcher.runtime import missing_requirements, requirements_of

_SECONDS = 60
# Variables in which CANN's set_env.sh sets its folder, and files there that contain its version.
_CANN = ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME")
_CANN_FILES = ("version.cfg", "compiler/version.info", "ascend_toolkit_install.info")
_NOT_LOADED = "the environment of CANN is not loaded: torch_npu and MindSpore cannot be imported without its libraries"
_LOAD = "source /usr/local/Ascend/ascend-toolkit/set_env.sh, or that of your folder"
_NUMBER = re.compile(r"(?:[Vv]ersion|runtime_running_version)\s*=\s*\[?([0-9][\w.]*)")


def software(
    backend: Backend,
    backend_version: str,
    *,
    device: str | None = None,
    python: str | None = None,
    environ: Mapping[str, str] = os.environ,
    found: Installed | None = None,
    starts_here: bool = False,
) -> list[Check]:
    """Return checks of a backend's installed and missing software.

    Args:
        device: kind of device that the job runs on; None: only what every kind needs.
        python: the job's own Python; None: this one.
        found: what a Python of another machine has, which was asked there: packages and checkouts are checked.
        starts_here: the job runs on this machine with this environment: without CANN's it cannot.
    """
    needed = [each for each in backend.support if each.holds(backend_version, device)]
    if device is None:
        needed = [each for each in needed if not each.devices]
    if found is None:
        found = installed([each.name for each in needed if each.kind == "package"], python)
    else:
        needed = [each for each in needed if each.kind != "cann"]
    checks = list(_missing(backend, backend_version, needed, found, environ))
    reported = {check.what for check in checks}
    for each in needed:
        if found.problem and each.kind in ("package", "python"):
            continue
        made = _check(each, backend, backend_version, found, environ)
        if starts_here and each.kind == "cann" and not any(environ.get(name) for name in _CANN):
            made = dataclasses.replace(made, verdict=ERROR, found=_NOT_LOADED, works=f"{_LOAD} · {made.works}")
        if made.what not in reported:
            checks.append(made)
    return checks


def _missing(
    backend: Backend, backend_version: str, needed: Sequence[Needed], found: Installed, environ: Mapping[str, str]
) -> Iterator[Check]:
    """Yield checks that make `run` refuse: missing packages and checkouts that the backend needs to start."""
    if found.problem:
        yield Check(what="python", verdict=SKIPPED, found=found.problem)
    by_name = {each.module or each.name: each for each in needed}
    for requirement in requirements_of(backend, backend_version):
        name = requirement.partition(":")[2]
        each = by_name.get(name)
        if each is not None and (each.name in found.versions or (found.problem and each.kind == "package")):
            continue
        texts = missing_requirements(backend, environ, (requirement,))
        if found.other_python and requirement.startswith("module:"):
            texts = [f"Python package {name} of {found.other_python}"]
        for text in texts:
            works = each.install.format(version=backend_version) if each and each.install else backend.install_hint
            yield Check(what=each.name if each else name, verdict=ERROR, found=f"{text} is missing", works=works)


def _check(each: Needed, backend: Backend, backend_version: str, found: Installed, environ: Mapping[str, str]) -> Check:
    if each.kind == "cann":
        here = cann(environ)
    elif each.kind == "checkout":
        here = checkout_version(Path(environ.get(each.name, "\0")), each)
    else:
        here = found.versions.get(each.name)
    works = each.install.format(version=backend_version)
    if here is None:
        return Check(what=each.name, verdict=WARNING, found="not found", works=works, source=each.source)
    if each.is_backend:
        return _backend_version(each, backend, backend_version, here)
    if each.wanted and not fits(here, each.wanted):
        wanted = f"{each.wanted}" + (f" (tested: {each.tested})" if each.tested else "")
        return Check(
            what=each.name,
            verdict=WARNING,
            found=here,
            works=f"{wanted}: {works}" if works else wanted,
            source=each.source,
        )
    tested = f"; tested: {each.tested}" if each.tested else ""
    return Check(what=each.name, verdict=OK, found=f"{here}{tested}", source=each.source)


def _backend_version(each: Needed, backend: Backend, wanted: str, here: str) -> Check:
    """Compare the backend's version with the catalogue that arguments are written for."""
    if _minor(here) == _minor(wanted):
        return Check(what=each.name, verdict=OK, found=here, source=each.source)
    others = [known for known in backend.versions if _minor(known) == _minor(here)]
    if others:
        return Check(
            what=each.name,
            verdict=ERROR,
            found=f"{here} is installed, arguments are written for {wanted}",
            works=f"backend.version={others[0]}, or {each.install.format(version=wanted)}",
            source=each.source,
        )
    return Check(
        what=each.name,
        verdict=WARNING,
        found=f"{here} is installed, arguments are written for {wanted}",
        works=f"{each.install.format(version=wanted)}; known versions: {', '.join(backend.versions)}",
        source=each.source,
    )


def fits(here: str, wanted: str) -> bool:
    """Return whether a version fits a specifier; local parts (`+cpu`) and pre-releases count as their number."""
    try:
        return SpecifierSet(wanted).contains(Version(here).public, prereleases=True)
    except InvalidVersion:
        return False


def _minor(text: str) -> tuple[int, ...]:
    return version_key(text).release[:2]


def cann(environ: Mapping[str, str]) -> str | None:
    """Return CANN's version; None if its environment is not loaded."""
    for name in _CANN:
        folder = environ.get(name)
        for file in _CANN_FILES if folder else ():
            try:
                found = _NUMBER.search((Path(str(folder)) / file).read_text(encoding="utf-8", errors="replace"))
            except OSError:
                continue  # each release has one of these files
            if found:
                return found[1]
    return None


def checkout_version(folder: Path, each: Needed) -> str | None:
    """Return the version of a checkout, from its version file or git; None if there is none."""
    if not folder.is_dir():
        return None
    if each.file:
        try:
            found = re.search(each.pattern, (folder / each.file).read_text(encoding="utf-8", errors="replace"))
        except OSError:
            return None
        return ".".join(found.groups()) if found else "unknown"
    for words in (("describe", "--tags", "--exact-match"), ("rev-parse", "--short", "HEAD")):
        try:
            done = subprocess.run(
                ["git", "-C", str(folder), *words], capture_output=True, text=True, timeout=_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            break
        if done.returncode == 0:
            return done.stdout.strip()
    return "a folder without a version"
