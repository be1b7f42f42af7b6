"""Failure texts of public issues, each as the log of a run that ended, and the reason that must be given for it."""

import re
from dataclasses import dataclass
from pathlib import Path

from launcher.executors.record import Record, write_exit, write_status
from launcher.observe.failure import Failure, first_failure

FOLDER = Path(__file__).parent / "failures"
SETS = tuple(sorted(path.stem for path in FOLDER.glob("*.txt")))


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """One failure text; `reasons`: any of them is right, "": nothing is said; `says`: any is in the quoted line."""

    name: str
    url: str
    reasons: tuple[str, ...]
    log: str
    says: tuple[str, ...] = ()
    rank: int | None = None
    code: int = 1
    devices: int = 8
    queue: str = ""


def texts(name: str) -> list[Text]:
    """Return the texts of one set."""
    blocks = re.split(r"(?m)^(?=### )", (FOLDER / f"{name}.txt").read_text(encoding="utf-8"))[1:]
    return [_text(block) for block in blocks]


def _text(block: str) -> Text:
    head, _, log = block.partition("---\n")
    name, *rows = head.splitlines()
    keys = dict(row.split(": ", 1) for row in rows)
    return Text(
        name=name.removeprefix("### "),
        url=keys["url"],
        reasons=tuple("" if reason == "-" else reason for reason in keys["reason"].split("|")),
        log=log,
        says=tuple(keys["says"].split(" || ")) if "says" in keys else (),
        rank=int(keys["rank"]) if "rank" in keys else None,
        code=int(keys.get("code", 1)),
        devices=int(keys.get("devices", 8)),
        queue=keys.get("queue", ""),
    )


def failure_of(text: Text, folder: Path) -> Failure:
    """Return what the program says of a run with this log."""
    known = {"id": "x-1", "executor": "ssh", "host": "here", "user": "me", "pid": 1, "start": 1, "submitted": ""}
    record = Record(folder=str(folder), nodes=1, devices_per_node=text.devices, **known)  # type: ignore[arg-type]
    (folder / "logs").mkdir(parents=True)
    (folder / "logs" / "node0.log").write_text(text.log, encoding="utf-8")
    write_exit(folder, 0, 0, text.code, stopped=False)
    write_status(folder, "failed", text.code, why=text.queue)
    found = first_failure(record)
    assert found is not None
    return found


def verdict(text: Text, failure: Failure) -> str:
    """Return `right`, `missed` (a reason is not given) or `wrong` (one that is not the reason, or not the rank's)."""
    if text.rank is not None and failure.rank != text.rank:
        return "wrong"
    if failure.reason in text.reasons:
        quoted = not text.says or any(words in failure.message for words in text.says)
        return "right" if quoted else "wrong"
    return "wrong" if failure.reason else "missed"
