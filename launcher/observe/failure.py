"""Finds why a run stopped: the first rank or node whose reason does not follow from the end of another one."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from launcher.executors.record import Exit, Record, causes_file, read_causes, read_exits, read_status
from launcher.job.secret import redacted
from launcher.observe.benign import BENIGN
from launcher.observe.error_files import ErrorFile, error_files
from launcher.observe.logs_of_ranks import AGENT, Line, NodeLog, Raised, plain, read_node, signal_in, signal_name
from launcher.observe.reason import Grade, Kind, Reason
from launcher.observe.reasons import EXCEPTION, order_of, reason_of, reason_of_error
from launcher.plan.executor import find_executor
from launcher.records import dataclass
from launcher.syntax import escaped

_CGROUP = "cgroup"
# So many logs are read whatever the nodes found in them.
_READ_FIRST = 16
_NUMBER = re.compile(r"\d+")
_PREFIX = re.compile(r"^(\[\w*\d+\]:? ?)+")
_WHAT = "  what(): "
# Of a line that may be shown where nothing names a reason.
_ERROR = re.compile(
    r"^(?!frame #|│).*(\b(ERROR|CRITICAL|FATAL)\b|(?<!:)\b[Ee]rror: |\b[Ff]atal\b|\b[Ff]ailed\b|\b(abort|kill)ed\b)"
)
_DEVICE = re.compile(r"CUDA|NCCL|[cC]uda|cuDNN|NPU|HCCL|ACL|[dD]evice|GPU|[tT]imed? ?out")


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a run failed.

    Attributes:
        rank: global rank that failed first; None if only its node is known.
        node, host: of that rank; None and "" if only the queue's reason is known.
        code: exit code of the node.
        reason: name in the table; "": nothing says why.
        message: line, or text of the exception, that shows it; without a reason the last line that says of an error.
        meaning: explanation of the reason.
        fields: canonical fields that affect it.
        evidence: where it stands: FILE:LINE, or who says it.
    """

    rank: int | None
    node: int | None
    host: str
    code: int
    reason: str = ""
    message: str = ""
    meaning: str = ""
    fields: tuple[str, ...] = ()
    evidence: str = ""

    def lines(self) -> list[str]:
        """Return the failure as a few lines of text, which a log or another user's folder cannot format."""
        on = f"node {self.node} ({self.host})" if self.node is not None else "the job"
        who = f"rank {self.rank} on {self.host}" if self.rank is not None else on
        why = f"{self.meaning} [{self.reason}]" if self.reason else "unknown reason: nothing that was written names it"
        lines = [f"failed first: {who}, exit code {self.code}: {why}"]
        if self.message:
            lines.append(f"  {'' if self.reason else 'the last error in its log: '}{self.message[:300]}")
        if self.evidence:
            lines.append(f"  {'evidence' if self.reason else 'its log'}: {self.evidence}")
        if self.fields:
            lines.append(f"  change: {' · '.join(self.fields)}")
        return [escaped(line) for line in lines]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Evidence:
    """One thing that shows a reason: of which rank (None: of the node), its text, and where it stands.

    `of_kill`: that the system killed a process for want of memory, which may be one of another program.
    """

    rank: int | None
    reason: Reason
    text: str
    line: Line | None = None
    where: str = ""
    of_kill: bool = False


def first_failure(record: Record, why: str = "", exits: Sequence[Exit] | None = None) -> Failure | None:
    """Return what failed first in a run's last attempt; None if nothing did.

    Args:
        why: what the queue says of the job's end.
    """
    folder = Path(record.folder)
    # Where the folder is gone, another run may have one of the same name.
    status = {} if record.gone else read_status(folder)
    says = [text for text in (why, str(status.get("reason", ""))) if text]
    if exits is None:
        exits = () if record.gone else read_exits(folder)
    # An attempt that no node began to run, such as one without a free port, has no exits.
    last = max([*(end.attempt for end in exits), int(status.get("attempt", 0))])
    failed = [end for end in exits if end.attempt == last and end.code and end.how != "stopped"]
    if not failed:
        return _of_queue(says, status.get("code"))
    since = max((end.at for end in exits if end.attempt < last), default=0.0)
    found = []
    for end in _in_order(failed):
        found.append(_of_node(record, folder, end, since, says))
        reason = found[-1][1]
        if reason is not None and not reason.consequence:
            return found[-1][0]
    known = [item for item in found if item[1] is not None]
    return (known or found)[0][0]


def _in_order(failed: Sequence[Exit]) -> Iterator[Exit]:
    """Yield the nodes whose logs are to be read until one has a cause: the first that failed, then by their own words.

    Of 10,000 nodes that lost their connection to one, each log would take a tenth of a second.
    """
    yield from failed[:_READ_FIRST]
    classified: dict[str, bool] = {}
    for end in failed[_READ_FIRST:]:
        if not end.lines or any(_may_be_cause(line, classified) for line in end.lines):
            yield end


def _may_be_cause(line: str, known: dict[str, bool]) -> bool:
    """Return whether a line may show something else than what follows from the end of another rank."""
    text = _NUMBER.sub("0", line)
    if text not in known:
        known[text] = not _follows(_PREFIX.sub("", line))
    return known[text]


def _follows(text: str) -> bool:
    name = signal_in(text)
    if name or AGENT.search(text):
        # Collectives that time out end their rank by SIGABRT.
        return name in ("", "SIGABRT", "SIGTERM")
    reason = reason_of_error(text) or reason_of(text, Kind.LINE, Kind.ANY)
    return bool(BENIGN.search(text)) or (reason is not None and reason.consequence)


def _of_queue(says: Sequence[str], code: object) -> Failure | None:
    for text in says:
        reason = reason_of(text, Kind.QUEUE)
        if reason is not None and isinstance(code, int) and code:
            return Failure(
                rank=None, node=None, host="", code=code, reason=reason.name, message=redacted(text),
                meaning=reason.meaning, fields=reason.fields, evidence="the queue",
            )  # fmt: skip
    return None


def _of_node(
    record: Record, folder: Path, end: Exit, since: float, says: Sequence[str]
) -> tuple[Failure, Reason | None]:
    """Return why a node failed, and the reason in the table; None: nothing shows one."""
    first, alone = end.node * record.devices_per_node, record.devices_per_node == 1
    log = read_node(folder / "logs" / f"node{end.node}.log", first, own=alone, iteration=record.iteration_line)
    files = error_files(folder, end.node, end.attempt, first, since)
    found = [*_of_system(record, folder, end, says), *_of_files(files), *_of_log(log), *_of_code(end)]
    for rank in range(first, first + record.devices_per_node if record.rank_log else first):
        path = folder / record.rank_log.replace("{rank}", str(rank))
        found += _of_log(read_node(path, rank, own=True, iteration=record.iteration_line))
    root = log.root if log.root is not None else files[0].rank if files else None
    root = first if alone else root
    chosen = _chosen(found, root)
    if chosen is None:
        path = folder / "logs" / f"node{end.node}.log"
        said = next((line for line in reversed(log.lines) if _is_error(line, root)), None)
        shown = said or log.root_line
        where = shown.place if shown else str(path) if path.exists() else ""
        message = redacted(said.text.strip()) if said else ""
        return Failure(rank=root, node=end.node, host=end.host, code=end.code, message=message, evidence=where), None
    # The exception of an error file mostly stands in the log, too.
    same = (each.line for each in found if each.line and each.text.endswith(chosen.text))
    line = chosen.line or next(same, None)
    failure = Failure(
        rank=chosen.rank if chosen.rank is not None else root,
        node=end.node,
        host=end.host,
        code=end.code,
        reason=chosen.reason.name,
        message=redacted(chosen.text),
        meaning=chosen.reason.meaning,
        fields=chosen.reason.fields,
        evidence=line.place if line else chosen.where,
    )
    return failure, chosen.reason


def _is_error(line: Line, root: int | None) -> bool:
    """Return whether a line of the rank that failed first says that something failed, though not in words we know."""
    own = root is None or line.rank in (root, None)
    return own and bool(_ERROR.search(line.text)) and not BENIGN.search(line.text)


def _chosen(found: Sequence[_Evidence], root: int | None) -> _Evidence | None:
    """Return what explains most: of the rank that failed first if anything of it does, else of any, the first."""
    if any(_is_not_of_devices(each, root) for each in found):
        found = [each for each in found if each.rank is not None or not each.reason.of_device]
    # The kernel and the cgroup report kills of all processes: they explain a rank that was killed, and nothing else.
    if not any(each.reason.grade is Grade.KILLED for each in found):
        found = [each for each in found if not each.of_kill]
    own = [each for each in found if root is None or each.rank in (root, None)]
    pool = [each for each in own if not each.reason.consequence]
    if not pool and own:  # it may have ended before the rank that is the reason, which was slower
        pool = list(found)
    elif not pool:  # nothing is known of it: what others raised, or lost, may be what followed
        pool = [each for each in found if each.reason.grade in (Grade.CAUSE, Grade.KILLED, Grade.CRASH)]
    return min(pool, key=_precedence, default=None)


def _is_not_of_devices(evidence: _Evidence, root: int | None) -> bool:
    """Return whether this is an exception of the rank that failed first, and its text names no device."""
    general = evidence.reason.grade is Grade.GENERAL and (root is None or evidence.rank in (root, None))
    return general and not _DEVICE.search(evidence.text)


def _precedence(evidence: _Evidence) -> tuple[int, ...]:
    """Return the key of evidence: of causes the first in time, of consequences the first in the table."""
    grade, row = order_of(evidence.reason)
    return (grade, row) if evidence.reason.consequence else (grade,)


def _of_system(record: Record, folder: Path, end: Exit, says: Sequence[str]) -> Iterator[_Evidence]:
    """Yield what the queue, the node's kernel and its cgroup say."""
    for text in (*says, end.how):
        if reason := reason_of(text, Kind.QUEUE):
            yield _Evidence(
                rank=None, reason=reason, text=text, where="the queue" if text != end.how else "its connection"
            )
    causes = causes_file(folder, end.attempt, end.node)
    for number, text in enumerate(read_causes(causes), 1):
        if reason := reason_of(text, Kind.QUEUE):
            where = _CGROUP if _CGROUP in text else str(causes)
            yield _Evidence(rank=None, reason=reason, text=text, where=where, of_kill=where == _CGROUP)
        elif reason := reason_of(text, Kind.NODE):
            of_kill = not reason.of_device
            yield _Evidence(rank=None, reason=reason, text=text, where=f"{causes}:{number}", of_kill=of_kill)
    executor = find_executor(record.executor)
    for name in () if executor is None else executor.log_files:
        yield from _of_lines(read_node(folder / "logs" / name, 0).lines, Kind.NODE)


def _of_files(files: Sequence[ErrorFile]) -> Iterator[_Evidence]:
    for each in files:
        reason = reason_of_error(each.text)
        if reason is None or reason.grade is Grade.GENERAL:
            # An earlier exception of the chain may say more.
            earlier = (reason_of_error(line) for line in reversed(each.stack.splitlines()) if line[:1].strip())
            reason = next((row for row in earlier if row and row.grade is Grade.CAUSE), reason) or EXCEPTION
        yield _Evidence(rank=each.rank, reason=reason, text=each.text.split("\n")[0], where=f"{each.path}:1")


def _of_log(log: NodeLog) -> Iterator[_Evidence]:
    """Yield what a log says, in its order."""
    found = [*_of_lines(log.lines, Kind.NODE), *_of_lines([*log.lines, *log.agent], Kind.ANY)]
    found += [_of_exceptions(raised) for raised in log.raised]
    found += _of_lines(plain(log.lines), Kind.LINE)
    for ended in log.signalled:
        if reason := reason_of(ended.name, Kind.SIGNAL):
            found.append(_Evidence(rank=ended.rank, reason=reason, text=ended.line.text.strip(), line=ended.line))
    yield from sorted(found, key=lambda each: each.line.offset if each.line else 0)


def _of_lines(lines: Sequence[Line] | Iterator[Line], kind: Kind) -> Iterator[_Evidence]:
    for line in lines:
        if reason := reason_of(line.text, kind):
            rank = None if kind is Kind.NODE else line.rank
            yield _Evidence(rank=rank, reason=reason, text=line.text.strip(), line=line)


def _of_exceptions(raised: Raised) -> _Evidence:
    """Return what exceptions show: the last one, or the nearest before it in the chain that tells a cause."""
    last, found = raised.chain[-1][0], []
    for lines in reversed(raised.chain):
        shown = [
            _Evidence(rank=line.rank, reason=reason, text=line.text.strip(), line=line)
            for number, line in enumerate(lines)
            for reason in (
                reason_of_error(line.text, first=number == 0 or _WHAT in line.text),
                reason_of(signal_in(line.text), Kind.SIGNAL),
            )
            if reason is not None
        ]
        found += [min(shown, key=lambda each: order_of(each.reason))] if shown else []
        if found and found[-1].reason.grade is Grade.CAUSE:
            return found[-1]
    return found[0] if found else _Evidence(rank=last.rank, reason=EXCEPTION, text=last.text.strip(), line=last)


def _of_code(end: Exit) -> Iterator[_Evidence]:
    """Yield what the exit code of the node's command says: the signal of 128 + N, a program that is not there."""
    if end.how == "lost":  # the code of ssh
        return
    name = signal_name(end.code - 128) if end.code > 128 else ""
    if reason := reason_of(name, Kind.SIGNAL) or reason_of(str(end.code), Kind.CODE):
        text = f"exit code {end.code}{f' ({name})' if name else ''}"
        yield _Evidence(rank=None, reason=reason, text=text, where="exit code of the node")
