"""What the embedded trainer reads data files as, which is less than what some backends do."""

from collections.abc import Mapping

from launcher.job import Job
from launcher.rehearse.core.options import DataKind, DataOptions
from launcher.rehearse.refusal import RehearsalRefused
from launcher.rules.data_files import DataReader, data_file_findings
from launcher.rules.registry import RuleContext

_SOURCE = "launcher/rehearse/core/data/samples.py"
_TURN = (("messages", (("role", "content"),)),)


def _lines(reads: str, *columns: tuple[str, ...], chats: bool = True) -> DataReader:
    turns = _TURN if chats else ()
    return DataReader(
        title="the embedded trainer", reads=reads, columns=columns, turns=turns, plain=True, source=_SOURCE
    )


_READERS: Mapping[DataKind, DataReader] = {
    "messages": _lines("JSONL of messages, each with role and content", ("messages",)),
    "preferences": _lines(
        "JSONL of messages with rejected_response or rejected_messages",
        ("messages", "rejected_response"),
        ("messages", "rejected_messages"),
    ),
    "text": _lines("JSONL of text", ("text",), chats=False),
}


def check_data(job: Job, data: DataOptions) -> None:
    """Refuse data files that the embedded trainer cannot read, before its processes start.

    Raises:
        RehearsalRefused: a file is not what it reads.
    """
    reader = _READERS.get(data.kind)
    if reader is None or not data.paths:
        return
    found = [each for each in data_file_findings(RuleContext(job=job), reader=reader) if each.severity == "error"]
    if found:
        raise RehearsalRefused(found)
