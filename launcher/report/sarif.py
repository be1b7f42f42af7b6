"""Findings as SARIF 2.1.0 (OASIS), which code scanning services and editors read."""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from launcher import __version__
from launcher.report.checked import CheckedFile, Place, PlacedFinding, text_of

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVELS = {"error": "error", "warning": "warning", "change": "note"}
_ROOT = "SRCROOT"


def sarif(files: Sequence[CheckedFile], root: Path) -> dict[str, Any]:
    """Return the log as plain data: one run, with the rules that were broken.

    Args:
        root: absolute folder of the sources; files below it are named relative to it, as GitHub expects.
    """
    found = [each for file in files for each in file.found]
    rules = sorted({each.finding.rule for each in found})
    skipped = [_notification(file, root) for file in files if file.skipped]
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "Launch",
                        "semanticVersion": __version__,
                        "rules": [_rule(rule) for rule in rules],
                    }
                },
                "originalUriBaseIds": {_ROOT: {"uri": f"{root.as_uri().rstrip('/')}/"}},
                "columnKind": "unicodeCodePoints",
                "invocations": [
                    {
                        "executionSuccessful": True,
                        "exitCode": 0 if all(file.ok for file in files) else 1,
                        "toolExecutionNotifications": skipped,
                    }
                ],
                "results": [_result(each, rules.index(each.finding.rule), root) for each in found],
            }
        ],
    }


def _rule(rule: str) -> dict[str, Any]:
    return {"id": rule, "help": {"text": f"launch explain {rule}", "markdown": f"`launch explain {rule}`"}}


def _result(each: PlacedFinding, index: int, root: Path) -> dict[str, Any]:
    finding = each.finding
    identity = "\0".join((finding.rule, _uri(each.place, root)[0], *finding.fields, *finding.flags))
    return {
        "ruleId": finding.rule,
        "ruleIndex": index,
        "level": _LEVELS[finding.severity],
        "message": {"text": text_of(finding)},
        "locations": [_location(each.place, root)],
        **({"relatedLocations": [_location(place, root) for place in each.related]} if each.related else {}),
        # Stable when lines move: neither the line nor the figures of the message are part of it.
        "partialFingerprints": {"launchFinding/v1": hashlib.sha256(os.fsencode(identity)).hexdigest()[:32]},
        "properties": {"fields": list(finding.fields), "fix": [str(fix) for fix in finding.fixes]},
    }


def _location(place: Place, root: Path) -> dict[str, Any]:
    uri, base = _uri(place, root)
    physical: dict[str, Any] = {"artifactLocation": {"uri": uri, **({"uriBaseId": base} if base else {})}}
    # A result without a region is shown by GitHub on no line at all.
    physical["region"] = {"startLine": max(1, place.line)}
    return {"physicalLocation": physical, **({"message": {"text": place.what}} if place.what else {})}


def _uri(place: Place, root: Path) -> tuple[str, str]:
    """Return the URI of a file and its base; a file outside of the root has an absolute one and no base."""
    relative = place.below(root)
    return (
        (Path(os.path.abspath(place.path)).as_uri(), "") if relative is None else (quote(os.fsencode(relative)), _ROOT)
    )


def _notification(file: CheckedFile, root: Path) -> dict[str, Any]:
    return {
        "level": "note",
        "message": {"text": f"not checked: {file.skipped}"},
        "locations": [_location(Place(path=file.path), root)],
    }
