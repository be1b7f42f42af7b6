"""Describes how a backend's entry point runs without an accelerator, for planners."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from launcher.installed import Installed, installed, version_read

if TYPE_CHECKING:
    pass

INJECT = Path(__file__).parent / "cpu" / "inject"
"""The folder whose ``sitecustomize.py`` installs the stand-ins; first on PYTHONPATH of a native rehearsal."""

NATIVE_VARIABLE = "LAUNCH_REHEARSAL_NATIVE"
SCRIPT_VARIABLE = "LAUNCH_REHEARSAL_SCRIPT"
RANK_NAME_VARIABLE = "LAUNCH_REHEARSAL_RANK"


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One PyPI distribution that the native entry needs; ``version`` is None where any version works."""

    distribution: str
    version: str | None = None

    def __str__(self) -> str:
        return self.distribution if self.version is None else f"{self.distribution}=={self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkout:
    """One source tree, not on PyPI, whose path the user sets in an environment variable."""

    variable: str
    holds: str
    """A file in it that identifies the tree, such as ``pretrain_gpt.py``."""
    what: str
    """What to clone, for messages: name and tested tags."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeOnCpu:
    """How a backend's unmodified entry point is trained on CPU: plain data, safe to import anywhere."""

    address: str
    """``module:NAME`` of this object, by which the rank process looks it up."""
    install: str
    """``module:function`` that installs the stand-ins in each rank; called with the absolute path of the script that
    runs next (its folder is not on sys.path yet), returns None, raises on failure."""
    script: str
    """Shell pattern of the rank's script as an absolute path; other processes are not changed."""
    title: str
    """Description of the run for the line on stderr: ``{NAME}`` is replaced by the version of the distribution NAME."""
    stand_ins: tuple[str, ...]
    """Names of the replaced software: ``("CUDA", "TransformerEngine")``."""
    task_stand_ins: tuple[tuple[str, str], ...] = ()
    """What is replaced for one task more, by task."""
    tested_with: tuple[Requirement, ...]
    """The versions that the stand-ins were tested with; another version is reported on stderr."""
    requires: tuple[Requirement, ...] = ()
    """Distributions required in the environment of the ranks."""
    checkouts: tuple[Checkout, ...] = ()
    catalogues: tuple[tuple[str, str | None, str], ...] = ()
    """By installed version of the backend's distribution, the last of ``requires``: first and last of a range, and the
    version of the backend whose arguments those read; empty where every installed version reads the same."""
    env: tuple[tuple[str, str], ...] = ()
    """Additional environment variables of the run."""
    rank_variable: str = "RANK"
    """The environment variable with the rank of a process, set by the native starter."""
    extra: str = ""
    """The extra of this package that installs ``requires``; empty where there is none."""
    loss_mean: Literal["tokens", "micro_batches"] = "tokens"
    """What the loss that it reports is the mean of, without --calculate-per-token-loss: all predicted tokens of an
    iteration, or its micro-batches, whose numbers of predictions may differ."""
    strided_samples: bool = False
    """Whether rank r of n reads the samples r, r + n, … of unshuffled data, and not micro-batches of neighbours."""
    note: str = ""
    """Note shown to the user before the run."""


def environment(native: NativeOnCpu, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables to add to the run's environment so that its rank processes find the stand-ins.

    Everything else (argv, working directory, rendezvous) stays as it is on the cluster. PYTHONPATH keeps what
    ``environ`` has in it; of this package, only the folder of ``sitecustomize.py`` is added to it.
    """
    path = [str(INJECT), *filter(None, [environ.get("PYTHONPATH")])]
    return {
        **dict(native.env),
        "PYTHONPATH": os.pathsep.join(path),
        NATIVE_VARIABLE: native.address,
        SCRIPT_VARIABLE: native.script,
        RANK_NAME_VARIABLE: native.rank_variable,
    }


def versions_in(python: str | None, native: NativeOnCpu) -> Callable[[str], str | None]:
    """Return a function from a distribution to its version in the environment of the ranks; None: not installed.

    Args:
        python: the interpreter that runs the ranks (`cluster.python`); None: this one.
    """
    return _installed(python, native).versions.get


def _installed(python: str | None, native: NativeOnCpu) -> Installed:
    return installed([need.distribution for need in (*native.requires, *native.tested_with)], python)


def missing_in(python: str | None, native: NativeOnCpu, environ: Mapping[str, str]) -> list[str]:
    """Return messages for everything that keeps the native entry from running in an interpreter's environment.

    Args:
        python: the interpreter that runs the ranks (`cluster.python`); None: this one.
        environ: environment of the ranks.
    """
    found = _installed(python, native)
    return [found.problem] if found.problem else missing(native, environ, found.versions.get)


def catalogue_for(native: NativeOnCpu, python: str | None) -> tuple[str, str] | None:
    """Return the installed version of the backend's distribution, and the version of the backend whose arguments it
    reads; None: it is not installed, or every version reads the same."""
    return version_read(native.requires[-1].distribution, native.catalogues, python)


def is_installed(distribution: str, python: str | None) -> bool:
    """Return whether the environment of the ranks (`cluster.python`; None: this one) has a distribution."""
    return distribution in installed([distribution], python).versions


def installed_version(distribution: str) -> str | None:
    """Return the version of a distribution in this interpreter's environment, or None where it is not installed."""
    return installed([distribution], None).versions.get(distribution)


def missing(
    native: NativeOnCpu, environ: Mapping[str, str], version_of: Callable[[str], str | None] = installed_version
) -> list[str]:
    """Return messages for everything that keeps the native entry from running here; empty where it can run.

    ``version_of`` looks up versions in the environment of the ranks, by default that of this interpreter.
    """
    hint = f"; install it with: pip install 'launch-llm[{native.extra}]'" if native.extra else ""
    problems = [
        f"{need.distribution} is not installed (tested with {need}){hint}"
        for need in native.requires
        if version_of(need.distribution) is None
    ]
    for tree in native.checkouts:
        folder = environ.get(tree.variable)
        if not folder:
            problems.append(f"{tree.variable} is not set: it must name a checkout of {tree.what}")
        elif not (Path(folder) / tree.holds).is_file():
            problems.append(f"{tree.variable}={folder} has no {tree.holds}: it must name a checkout of {tree.what}")
    return problems


def untested(native: NativeOnCpu, version_of: Callable[[str], str | None] = installed_version) -> list[str]:
    """Return one line for each distribution whose version differs from the one that the stand-ins were tested with."""
    lines = []
    for pin in native.tested_with:
        found = version_of(pin.distribution)
        if found is not None and pin.version is not None and found.partition("+")[0] != pin.version:
            lines.append(
                f"{pin.distribution} {found} is not the version the stand-ins were tested with ({pin.version})"
            )
    return lines


def announcement(
    native: NativeOnCpu, version_of: Callable[[str], str | None] = installed_version, task: str | None = None
) -> str:
    """Return a sentence that describes the run: the unmodified backend on CPU, and the software that is replaced."""
    versions = {
        pin.distribution: version_of(pin.distribution) or "?" for pin in (*native.requires, *native.tested_with)
    }
    title = native.title
    for name, version in versions.items():
        title = title.replace("{" + name + "}", version)
    *most, last = (*native.stand_ins, *(what for name, what in native.task_stand_ins if name == task))
    listed = f"{', '.join(most)} and {last}" if most else last
    return f"{title} itself, unmodified, on CPU through stand-ins for {listed}"
