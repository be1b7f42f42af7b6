"""Takes off what launchers and loggers put before the lines of a program: its rank or process, the time, the level."""

import re

from launcher.records import dataclass

# Of a rank: those of this program's launches, torch's own, torchrun's.
_RANK = re.compile(r"^\"?\[rank(\d{1,9})\]:? ?")
_LOCAL = re.compile(r"^\[default(\d{1,9})\]:? ?")
# Of a process: Ray's, vLLM's, SkyPilot's.
_PROCESS = re.compile(r"^(?=\([^()]{0,160}\bpid=)\((?:[\w.:-]+,? ){0,3}\w+=[^\s,)=]+(?:,? \w+=[^\s,)=]+){0,5}\) ?")
# mpirun --tag-output, with --timestamp-output.
_TAGGED = re.compile(r"^(?:[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d [\d:]{8} \d{4})?(\[\d+,\d+\])?<std(?:out|err)>:")
# Of a host or a task, before any line: pdsh's (DeepSpeed), srun --label's.
_LABEL = re.compile(r"^(?:\d{1,3}(?:\.\d{1,3}){3}|(?!python)[a-z][\w.-]{0,60}\d| {0,4}\d{1,5}): (?=\S)")
# A time before the name of a process.
_TIMED = re.compile(r"^\[?\d{4}-\d\d-\d\d[T ][\d:.,Z+-]+\]? (?=\([^()]{0,160}\bpid=)")
# Of a logger that passes on the lines of its ranks, or numbers them.
_RELAYED = re.compile(
    r"^\[\d{1,9}\] (?=\[rank\d{1,9}\]:)|"
    r"^\[?\d{4}-\d\d-\d\d[T ][^\[\]]{0,120}?\b(?:INFO|WARNING|ERROR)\]?[ :|-]{1,4}(?=\[rank\d{1,9}\]:)"
)
_COLOUR = re.compile(r"\x1b\[[\d;]*m")
# The frame that Python draws around the tracebacks of a group of exceptions.
_GROUP = re.compile(r"^ +\| ")
_TRACEBACK = (
    r"(?=(?:Exception Group )?Traceback \(|  File \"|    |\s*what\(\): |\s*$|During handling of|The above exception|"
    r"(?:[A-Za-z_]\w*\.)*\w*(?:Error|Exception)\b|(?:[A-Za-z_]\w*\.)+(?:errors?|exceptions?|exc)\.\w+: )"
)
# Of a host or of a time, before a line of a traceback.
_HOST = re.compile(r"^(?!\S*(?:Error|Exception): )[\w.-]+: " + _TRACEBACK)
# Of a logger at the level of errors, before a line of a traceback: times, levels, [module], (process), file:line.
_LOGGED = re.compile(
    r"^(?:(?:\[(?![^\]]*(?:WARN|INFO|DEBUG))[^\]]{0,80}\]|\((?![^()]*\bpid=)[^()]{0,80}\)|\d[\d:.,TZ+-]*|[EF]\d{4}|[A-Z][a-z]{2}|"
    r"ERROR|CRITICAL|FATAL|[0-9a-f]{8}|\|{1,2}|-|:|stderr:|[\w./-]{1,120}:\d+\]?):?[ \t]){1,9}"
    r"(?:(?:Uncaught|Unhandled) (?:exception:? |error:? )?)?" + _TRACEBACK
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A line without its prefixes; rank, local rank and process that these name (None, None, "": they name none)."""

    text: str
    rank: int | None = None
    local: int | None = None
    process: str = ""


def without_prefixes(text: str) -> Text:
    """Return what the program wrote, and who it was."""
    if "\x1b" in text:
        text = _COLOUR.sub("", text)
    if "[rank" in text and (found := _RELAYED.match(text)):
        text = text[found.end() :]
    rank = local = None
    while found := _RANK.match(text) or _LOCAL.match(text):
        rank, local = (int(found[1]), None) if found.re is _RANK else (None, int(found[1]))
        text = text[found.end() :]
    process = ""
    for pattern in (_LABEL, _TIMED, _TAGGED, _PROCESS, _LOGGED, _HOST, _GROUP):
        if found := pattern.match(text):
            process += (found[1] or "") if pattern is _TAGGED else found[0] if pattern is _PROCESS else ""
            text = text[found.end() :]
    return Text(text=text, rank=rank, local=local, process=process)
