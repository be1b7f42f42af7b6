"""The page of examples: `launch dry-run +recipe=qwen3_moe` against each backend's own, argument by argument.

examples.json beside this file holds the examples' arguments with their source, and a reason for every difference; a
difference without a reason is an error here.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from launcher.api import check, compose, translate

DATA = Path(__file__).with_name("examples.json")
HEAD = """# What an expert would have typed

Each table holds `launch dry-run +recipe=qwen3_moe backend=…` (Qwen3-30B-A3B, 16 devices) against the backend's own
example for that model. Equal arguments are counted, not listed; `–` stands for an argument that is not written.
"""


def pages() -> dict[str, str]:
    """Return the page.

    Raises:
        SystemExit: a difference has no reason.
    """
    lines = [HEAD]
    for table in json.loads(DATA.read_text(encoding="utf-8")):
        ours = _ours(table["backend"])
        rows = list(_differences(ours, table["example"], table["reasons"]))
        missing = [flag for flag, _, _, reason in rows if not reason]
        if missing:
            raise SystemExit(f"{table['backend']}: no reason for {', '.join(missing)}")
        same = sum(_equal(ours.get(flag), value) for flag, value in table["example"].items())
        lines += ["", f"## {table['title']}", "", f"Source: {table['source']}. {table['note']}", ""]
        lines.append(
            f"{same} of the example's {len(table['example'])} arguments are equal; the {len(rows)} differences:"
        )
        lines += ["", "| argument | example | ours | why |", "|---|---|---|---|"]
        lines += [f"| `{flag}` | {_shown(theirs)} | {_shown(mine)} | {reason} |" for flag, theirs, mine, reason in rows]
    return {"examples.md": "\n".join(lines) + "\n"}


def _ours(backend: str) -> dict[str, Any]:
    job = compose([f"backend={backend}"], recipe="qwen3_moe")
    assert not [finding for finding in check(job) if finding.severity == "error"]
    return {arg.flag: list(arg.value) if isinstance(arg.value, tuple) else arg.value for arg in translate(job)}


def _differences(
    ours: Mapping[str, Any], example: Mapping[str, Any], reasons: Mapping[str, str]
) -> Iterator[tuple[str, Any, Any, str]]:
    for flag in [*example, *(flag for flag in ours if flag not in example)]:
        theirs, mine = example.get(flag), ours.get(flag)
        if not _equal(mine, theirs):
            yield flag, theirs, mine, _reason(flag, reasons)


def _reason(flag: str, reasons: Mapping[str, str]) -> str:
    """Return the reason for a flag: its own, or that of the longest prefix ending in `*`."""
    if flag in reasons:
        return reasons[flag]
    prefixes = [key for key in reasons if key.endswith("*") and flag.startswith(key[:-1])]
    return reasons[max(prefixes, key=len)] if prefixes else ""


def _equal(mine: Any, theirs: Any) -> bool:
    if mine is None or theirs is None:
        return mine is theirs
    try:
        return float(mine) == float(theirs)
    except (TypeError, ValueError):
        return str(mine).lower() == str(theirs).lower()


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    text = (
        str(value).lower()
        if isinstance(value, bool)
        else " ".join(map(str, value))
        if isinstance(value, list)
        else str(value)
    )
    return text.replace("|", "\\|") or '""'
