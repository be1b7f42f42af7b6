"""Reads a node's log as the ranks wrote it: lines with their rank and place, exceptions that ended a rank, signals."""

import re
import signal
from collections.abc import Iterable, Iterator
from dataclasses import field, replace
from pathlib import Path

from launcher.executors import private
from launcher.executors.log_parts import last_part
from launcher.observe.benign import BENIGN, HANDLED, WARNED
from launcher.observe.prefixes import without_prefixes
from launcher.records import dataclass

_READ = 4_000_000
_CONTINUED = 40
_LONGEST_LINE = 8192
_ATTEMPT = re.compile(rb"^launch: (attempt \d+ failed|resumes from )", re.MULTILINE)
# The program that monitors the ranks, and its own exceptions of which a rank's failure is the cause.
AGENT = re.compile(
    r"torch[./]distributed[./](elastic(?!\.rendezvous\.\w+\.Rendezvous)|run|launch)|ChildFailedError|"
    r"torchelastic\.worker\.status"
)
_FRAME = re.compile(r"^\s*(File \")|^\s*\[Previous line repeated|^\s+[~^]+\s*$")
_TRACEBACK = re.compile(r"^[\s|+]*(Exception Group )?Traceback \(most recent call last\):")
_CHAIN = re.compile(
    r"During handling of the above exception, another|The above exception was the direct cause|"
    r"^\s*\+-(?:\+-|[+-]* \d+ -)|"  # between a group of exceptions and each of them
    r"^-- Process \d+ terminated with the following "  # torch.multiprocessing.spawn
)
# Hydra prints the exception without its traceback, or without its type, below this.
_COMPACT = re.compile(r"^Error executing job with overrides: ")
_EXCEPTION = re.compile(
    r"^(?:[A-Za-z_]\w*\.)*(?:[A-Z]\w*)?(?:Error|Exception|Interrupt|Failure|Timeout|StopIteration)"
    r"(?:\(\w+\))?(?:: |:?$)|"
    r"^(?:[A-Za-z_]\w*\.)+(?:errors?|exceptions?|exc)\.(?:\w+\.)*[A-Z]\w+: "
)
# After the frames of a traceback an exception may have any name.
_ANY_EXCEPTION = re.compile(r"^(?:[A-Za-z_]\w*\.)*(?:[A-Z]\w+|\w*error)(?:: |:?$)")
_WHAT = re.compile(r"^\s*what\(\): ")
_UNCAUGHT = re.compile(r"^Fatal Python error: \w+: |^terminate called after throwing an instance of '|^\s*what\(\): ")
# torch elastic prints the content of an error file.
_RECORDED = re.compile(r"^\s*\"message\": \"\w*(Error|Exception)\b")
# torch elastic: "failed (exitcode: -9) local_rank: 3", and its summary.
_FAILED = re.compile(r"failed \(exitcode: (-?\d{1,9})\) local_rank: (\d{1,9})")
_ROOT_CAUSE = re.compile(r"^\s*Root Cause\b")
_SUMMARY = re.compile(r"^\s*(rank|exitcode)\s*:\s*(-?\d{1,9})")
_SUMMARY_LINES = 9
# What a shell, srun and Python call the signals that end a program (strsignal(3)).
_CALLED = {
    str(signal.strsignal(number)): number.name
    for number in (
        *(signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGTERM),
    )
}
_NAMES = "|".join(map(re.escape, _CALLED))
_SIGNAL = re.compile(
    r"terminated with signal (SIG[A-Z]+)|died with <Signals\.(SIG[A-Z]+)|\*\*\* (SIG[A-Z]+) \(@|"
    r"\b(?:return code|exit ?code|exit status|returncode)s? ?[=:]? ?(-\d{1,9})\b|"
    r"\b(?:exited|terminated) with (?:exit )?(?:code|status):? (-\d{1,2}|1(?:3\d|43))\b|"
    r"(?:exited on|exited with|Caught|died with|killed by|terminated by) signal:? (\d{1,2})\b|"
    rf"(?:Fatal Python error: |killed by signal: |^(?:\[[\w.:-]+\] )?Signal: )({_NAMES})\b|`({_NAMES})` is detected|"
    rf"^(?:srun: error: \S+ tasks? \S+ |)({_NAMES})(?: \(core dumped\)|  |: \d+$|$)|^\S+: line \d+: +\d+ ({_NAMES})\b|"
    r"^!+ (Segfault) encountered !"
)
_CALLED["Segfault"] = signal.SIGSEGV.name  # c10, at a fatal signal


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a log: whose it is (None, "": not known), its text without prefixes, and where it stands."""

    rank: int | None
    text: str
    path: Path
    offset: int
    process: str = ""

    @property
    def place(self) -> str:
        """File and number of the line."""
        return f"{last_part(self.path)}:{_number(self.path, self.offset)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """Exceptions that were chained and not caught, the last one last; each with the lines of its text."""

    chain: tuple[tuple[Line, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Signalled:
    """A rank (None: not known which) or program that a signal ended."""

    rank: int | None
    name: str
    line: Line


@dataclass(slots=True, kw_only=True)
class NodeLog:
    """What a node's log says, in order.

    Attributes:
        lines: those of ranks and of the node's system, without those of tracebacks.
        raised: exceptions that no code caught.
        agent: lines of torch elastic's agent.
        signalled: ends by a signal.
        root: rank that torch elastic saw fail first; None: it says nothing.
        root_line: where it does.
        separate: whether the lines of ranks are marked, so that unmarked lines are of the node's first rank.
    """

    lines: list[Line] = field(default_factory=list)
    raised: list[Raised] = field(default_factory=list)
    signalled: list[Signalled] = field(default_factory=list)
    agent: list[Line] = field(default_factory=list)
    root: int | None = None
    root_line: Line | None = None
    separate: bool = False


def read_node(path: Path, first: int, *, own: bool = False, iteration: str = "") -> NodeLog:
    """Read the end of a log, from its last attempt on.

    Args:
        first: global rank of the node's first rank.
        own: the log is of that rank alone.
        iteration: pattern of the line that follows every iteration: what the same rank wrote before did not end it.
    """
    log = NodeLog(separate=own)
    lines = list(_lines(path, first, log))
    if not log.separate:
        lines = [replace(line, rank=None) for line in lines]
    _read_agent(lines, log, first)
    progress = re.compile(iteration) if iteration else None
    writers: dict[tuple[int | None, str], list[Line]] = {}
    for line in lines:
        writers.setdefault((line.rank, line.process), []).append(line)
    for of_rank in writers.values():
        if progress is not None and log.separate:
            last = max((number for number, line in enumerate(of_rank) if progress.search(line.text)), default=-1)
            of_rank = of_rank[last + 1 :]
        _read_rank(of_rank, log)
    log.lines.sort(key=lambda line: line.offset)
    log.raised.sort(key=lambda raised: raised.chain[0][0].offset)
    log.signalled.sort(key=lambda ended: ended.line.offset)
    return log


def _lines(path: Path, first: int, log: NodeLog) -> Iterator[Line]:
    data, offset = _tail(path)
    for raw in data.split(b"\n"):
        text = raw.decode("utf-8", "replace").rstrip("\r")
        if "\r" in text:  # a progress bar: what was written over it counts
            text = text.rpartition("\r")[2]
        found = without_prefixes(text[:_LONGEST_LINE])
        rank = found.rank if found.rank is not None else first + (found.local or 0)
        log.separate = log.separate or found.rank is not None or found.local is not None
        yield Line(rank=rank, text=found.text, path=path, offset=offset, process=found.process)
        offset += len(raw) + 1


def _tail(path: Path) -> tuple[bytes, int]:
    """Return the end of a log, from the last attempt on, and its offset in the file."""
    try:
        with private.open_to_read(last_part(path)) as stream:
            size = stream.seek(0, 2)
            start = stream.seek(max(0, size - _READ))
            data = stream.read()
    except OSError:
        return b"", 0
    begun = [found.start() for found in _ATTEMPT.finditer(data)]
    if not begun:
        return data, start
    skipped = data.find(b"\n", begun[-1]) + 1 or len(data)
    return data[skipped:], start + skipped


def _number(path: Path, offset: int) -> int:
    """Return the number of the line that begins at an offset."""
    number = 1
    with private.open_to_read(last_part(path)) as stream:
        while offset > 0 and (chunk := stream.read(min(offset, 1 << 20))):
            number += chunk.count(b"\n")
            offset -= len(chunk)
    return number


def _read_agent(lines: list[Line], log: NodeLog, first: int) -> None:
    """Read which rank torch elastic saw fail first, and by what."""
    last: list[Line] = []
    for number, line in enumerate(lines):
        if log.root is None and (found := _FAILED.search(line.text)):
            _root(log, first + int(found[2]), int(found[1]), line)
        elif _ROOT_CAUSE.match(line.text):
            _read_summary(lines[number + 1 : number + 1 + _SUMMARY_LINES], log, line)
        elif "(local_rank: " in line.text and _SUMMARY.match(line.text):
            last = lines[number : number + _SUMMARY_LINES]
    if log.root is None and last:  # the log begins inside the summary, whose last rank is the first that failed
        _read_summary(last, log, last[0])


def _read_summary(block: list[Line], log: NodeLog, line: Line) -> None:
    known = {found[1]: int(found[2]) for each in block if (found := _SUMMARY.match(each.text))}
    if "rank" in known:
        _root(log, known["rank"], known.get("exitcode", 1), line)


def _root(log: NodeLog, rank: int, code: int, line: Line) -> None:
    log.root, log.root_line = rank, line
    if code < 0 and (name := signal_name(-code)):
        log.signalled.append(Signalled(rank=rank, name=name, line=line))


def signal_name(number: int) -> str:
    """Return the name of a signal; "" if there is none of that number."""
    return next((each.name for each in signal.Signals if each.value == number), "")


def signal_in(text: str) -> str:
    """Return the name of the signal that a text says ended a program; "" if it says none."""
    found = _SIGNAL.search(text)
    if found is None:
        return ""
    word = str(found[found.lastindex or 0])
    if not word.lstrip("-").isdecimal():
        return _CALLED.get(word, word)
    number = abs(int(word))
    return signal_name(number - 128 if number > 128 else number)


def _read_rank(lines: list[Line], log: NodeLog) -> None:
    """Sort the lines of one rank into exceptions, signals and the rest."""
    reader = _Reader(log)
    for line in lines:
        reader.read(line)
    reader.close()


class _Reader:
    """Follows the lines of one rank through tracebacks.

    Attributes:
        chain: exceptions read so far, each with the lines of its text.
        frames: whether a traceback has begun whose exception is still to come.
        linked: whether the next exception is chained to the ones before.
        text: whether the next line may still be of the last exception's text.
        handled, warned: whether the line before announces a traceback that was handled, surely or perhaps.
        compact: whether the line before announces an exception without a traceback or a type.
    """

    def __init__(self, log: NodeLog) -> None:
        self._log = log
        self._chain: list[list[Line]] = []
        self._frames = self._linked = self._text = self._handled = self._warned = self._compact = False

    def read(self, line: Line) -> None:
        """Take the next line."""
        text = line.text
        compact, self._compact = self._compact, bool(_COMPACT.match(text))
        if _TRACEBACK.search(text):
            if not self._linked:
                self.close()
            self._frames, self._linked, self._text = True, False, False
        elif _CHAIN.search(text):
            self._linked, self._text = True, False
        elif (found := _FRAME.match(text)) or not text.strip():
            # The log may begin behind the first line of a traceback, and some write none.
            self._frames = self._frames or bool(found and found[1])
            self._text = False
        elif AGENT.search(text):
            self._text = False
            self._log.agent.append(line)
        elif _WHAT.match(text) and self._text:
            self._chain[-1].append(line)
        elif self._is_exception(text) or (compact and not _is_benign(text)):
            self._raise(line)
        elif self._text and not _ends_text(text) and len(self._chain[-1]) < _CONTINUED:
            self._chain[-1].append(line)
        elif not (self._frames and text.startswith("    ")):  # else a source line
            self._plain(line)

    def _is_exception(self, text: str) -> bool:
        pattern = _ANY_EXCEPTION if self._frames else _EXCEPTION
        found = pattern.match(text) or _UNCAUGHT.match(text) or _RECORDED.match(text)
        return bool(found) and not _is_benign(text)

    def _raise(self, line: Line) -> None:
        if not (self._frames or self._linked):  # without a traceback
            self.close()
        self._chain.append([line])
        self._frames, self._linked, self._text = False, False, not (self._handled or self._warned)

    def _plain(self, line: Line) -> None:
        self.close(went_on=True)
        self._handled = bool(HANDLED.search(line.text))
        self._warned = bool(WARNED.search(line.text))
        if name := signal_in(line.text):
            self._log.signalled.append(Signalled(rank=line.rank, name=name, line=line))
        self._log.lines.append(line)

    def close(self, *, went_on: bool = False) -> None:
        """End the exceptions read so far; the rank may have gone on after them."""
        if self._chain and not self._handled and not (self._warned and went_on):
            self._log.raised.append(Raised(chain=tuple(map(tuple, self._chain))))
        if self._chain:
            self._handled = self._warned = False
        self._chain, self._frames, self._linked, self._text = [], False, False, False


def _ends_text(text: str) -> bool:
    return _is_benign(text) or bool(HANDLED.search(text))


def _is_benign(text: str) -> bool:
    return bool(BENIGN.search(text))


def plain(lines: Iterable[Line]) -> Iterator[Line]:
    """Yield the lines that are no notices or warnings."""
    return (line for line in lines if not BENIGN.search(line.text))
