"""Findings as workflow commands of GitHub Actions, which show them at their lines in a pull request.

The syntax and its escapes are those of GitHub's own toolkit (packages/core/src/command.ts): `%`, CR and LF everywhere,
also `:` and `,` in properties.
"""

from collections.abc import Iterable
from pathlib import Path

from launcher.report.checked import CheckedFile, PlacedFinding, text_of

_COMMANDS = {"error": "error", "warning": "warning", "change": "notice"}


def annotations(files: Iterable[CheckedFile], root: Path) -> list[str]:
    """Return one line for each finding, errors first: GitHub shows ten of each kind for a step.

    Args:
        root: folder of the checkout; GitHub wants paths relative to it.
    """
    found = [each for file in files for each in file.found]
    found.sort(key=lambda each: list(_COMMANDS).index(each.finding.severity))
    return [_annotation(each, root) for each in found]


def _annotation(each: PlacedFinding, root: Path) -> str:
    finding, place = each.finding, each.place
    properties = {
        "file": place.below(root) or place.path,
        **({"line": str(place.line)} if place.line else {}),
        "title": finding.rule,
    }
    written = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{_COMMANDS[finding.severity]} {written}::{_data(text_of(finding))}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
