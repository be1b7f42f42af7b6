"""Enters a version into a backend's `versions.json`, and takes it out again if something is unsettled."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from launcher.catalogue.versions import version_key

BACKENDS = Path(__file__).resolve().parents[2] / "backends"
_NUMBERED = re.compile(r"\d+(\.\d+)*(-dev)?")


def file_of(backend: str) -> Path:
    """Return the file with a backend's versions."""
    return BACKENDS / backend / "versions.json"


def names(backend: str) -> list[str]:
    """Return the registered versions in the order of the file."""
    return [row["name"] for row in json.loads(file_of(backend).read_text(encoding="utf-8"))["versions"]]


def neighbours(known: list[str], version: str) -> tuple[str | None, str | None]:
    """Return the versions before and after one; None: there is none."""
    others = sorted((each for each in known if each != version), key=version_key)
    before = [each for each in others if version_key(each) < version_key(version)]
    after = [each for each in others if version_key(each) > version_key(version)]
    return before[-1] if before else None, after[0] if after else None


def entered(text: str, row: Mapping[str, Any], today: str) -> str:
    """Return the content of a `versions.json` with one more version, or with that version's row brought up to date.

    Numbered versions stand newest first, branches after them. A version newer than `upstream.newest` becomes it.

    Args:
        text: the content before.
        row: the version's row.
        today: ISO date.
    """
    data = json.loads(text)
    rows = [each for each in data["versions"] if each["name"] != row["name"]]
    # Other releases that accept the same stay its spellings.
    earlier: dict[str, Any] = next((each for each in data["versions"] if each["name"] == row["name"]), {})
    is_number = _NUMBERED.fullmatch(row["name"]) is not None
    older = (
        at
        for at, each in enumerate(rows)
        if not _NUMBERED.fullmatch(each["name"]) or version_key(each["name"]) < version_key(row["name"])
    )
    rows.insert(next(older, len(rows)) if is_number else len(rows), {**earlier, **row})
    return rendered(data | {"upstream": _newest(data["upstream"], row, today), "versions": rows})


def made_equal(text: str, row: Mapping[str, Any], of: str, today: str) -> str:
    """Return the content with the release of a row as another spelling of a version that accepts the same."""
    data = json.loads(text)
    for each in data["versions"]:
        if each["name"] == of:
            each["equal"] = sorted({*each.get("equal", ()), row["name"]}, key=version_key)
    return rendered(data | {"upstream": _newest(data["upstream"], row, today)})


def _newest(upstream: Mapping[str, str], row: Mapping[str, Any], today: str) -> Mapping[str, str]:
    """Return `upstream` with a release, if that is newer."""
    is_number = _NUMBERED.fullmatch(row["name"]) is not None
    if not is_number or version_key(row["name"]) <= version_key(upstream["newest"]):
        return upstream
    return {"newest": row["name"], "released": row["released"], "seen": today}


def rendered(data: Mapping[str, Any]) -> str:
    """Return the text of a `versions.json`: one version a line."""
    head = [f" {json.dumps(key)}: {json.dumps(value)}," for key, value in data.items() if key != "versions"]
    rows = ",\n".join(f"  {json.dumps(row)}" for row in data["versions"])
    return "\n".join(["{", *head, ' "versions": [', rows, " ]", "}"]) + "\n"
