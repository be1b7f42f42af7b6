"""Kinds of output files (`-o` and similar options), and how an existing file is recognised as one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from launcher.records import dataclass
from launcher.syntax import PACKAGE

# Written into images, traces and scripts to recognise them later.
MARK: Final = "made by launch"
_HEAD = 1 << 16
# Maximum size of a job file, which is read as a whole.
_LARGEST_JOB = 1 << 22


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of file.

    Attributes:
        title: name for messages.
        recognises: whether a file is of this kind; called for regular files only.
        edited: users edit such files: an old one with different content is kept as a backup.
    """

    title: str
    recognises: Callable[[Path], bool]
    edited: bool = True


def table(title: str, *columns: str) -> Kind:
    """Return the kind of CSV file with exactly these columns."""
    first = ",".join(columns)
    return Kind(title=title, recognises=lambda path: _head(path).partition(b"\n")[0].strip() == first.encode())


def _head(path: Path, count: int = _HEAD) -> bytes:
    with path.open("rb") as file:
        return file.read(count)


HARDWARE_HEAD: Final = "# @package hardware"


def _is_hardware_file(path: Path) -> bool:
    return _head(path, len(HARDWARE_HEAD)) == HARDWARE_HEAD.encode()


METRICS_HEAD: Final = "# HELP launch_"


def _is_metrics(path: Path) -> bool:
    return _head(path, len(METRICS_HEAD)) == METRICS_HEAD.encode()


def _is_findings(path: Path) -> bool:
    head = _head(path)
    return b'"name": "Launch"' in head or b'<testsuites name="launch check"' in head


def _marked(path: Path) -> bool:
    return MARK.encode() in _head(path)


def _is_job(path: Path) -> bool:
    """Return whether a file is an override file, or YAML whose top level is a job's."""
    if os.path.getsize(path) > _LARGEST_JOB:
        return False
    try:
        text = _head(path, _LARGEST_JOB).decode("utf-8")
    except UnicodeDecodeError:
        return False
    return text.startswith(PACKAGE) or _has_job_sections(text)


def _has_job_sections(text: str) -> bool:
    import yaml

    from launcher.job import fields
    from launcher.job.migrations import KEY

    try:
        tree = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, RecursionError, ValueError):
        return False
    known = {"defaults", KEY, *(path.partition(".")[0] for path in fields())}
    return isinstance(tree, dict) and bool(tree) and all(name in known for name in tree)


def _is_schema(path: Path) -> bool:
    return b'"title": "Job of Launch' in _head(path, 200)


NEW: Final = Kind(title="a file to replace", recognises=lambda path: False)
JOB: Final = Kind(title="a job file", recognises=_is_job)
HARDWARE: Final = Kind(title="a hardware file that launch made", recognises=_is_hardware_file)
PICTURE: Final = Kind(title="a picture that launch made", recognises=_marked, edited=False)
REPORT: Final = Kind(title="a report that launch made", recognises=_marked, edited=False)
TRACE: Final = Kind(title="a trace that launch made", recognises=_marked, edited=False)
PROGRAM: Final = Kind(title="a mixed-integer program that launch made", recognises=_marked, edited=False)
FINDINGS: Final = Kind(title="findings that launch wrote", recognises=_is_findings, edited=False)
METRICS: Final = Kind(title="metrics that launch wrote", recognises=_is_metrics, edited=False)
SCHEMA: Final = Kind(title="a schema that launch made", recognises=_is_schema, edited=False)
