"""Whether a data file has what the backend's own code reads from it, as far as its first record shows."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from glob import escape, glob
from pathlib import PurePosixPath
from typing import Any

from launcher.catalogue.versions import in_range
from launcher.job import Job, Value, override_text
from launcher.job.finding import Finding, Fix
from launcher.plan.executor import find_executor
from launcher.records import dataclass
from launcher.rules.changes import affects_training
from launcher.rules.file_peek import KINDS, Peek, peek
from launcher.rules.registry import RuleContext
from launcher.rules.table import holds
from launcher.syntax import escaped

ID = "DATA-FILE"
# Containers by the ending of a file's name, where the backend goes by it. Source: datasets' builders, which ms-swift
# (dataset/loader.py:47 @4.6.0) and MindSpeed-LLM (tasks/preprocess/data_handler.py:1020 @26.1.0) choose so.
ENDINGS: Mapping[str, str] = {
    ".json": "json",
    ".jsonl": "json",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".csv": "csv",
    ".txt": "text",
}
# Files that are peeked at, of those of a job.
_MOST_FILES = 64
_MOST_COLUMNS, _LONGEST = 6, 40
_MOST_OFFERS = 3
# Formats of data that are not files of this machine.
_NO_FILES = ("sample", "mock")


@dataclass(frozen=True, slots=True, kw_only=True)
class DataReader:
    """What a backend's code reads a data file as.

    Attributes:
        title: its name, as the backend's.
        reads: what it reads, for messages.
        when: conditions under which it reads the files, as those of rules (`launcher.rules.table`).
        kinds: containers that it reads (`file_peek.KINDS`).
        by_ending: it chooses the container by the ending of the file's name, not by its content.
        plain: it reads lines of text itself: no folder, no compressed file, no record over several lines.
        prefixes: it also reads token files, named by their prefix.
        columns: sets of columns, of which a record has one.
        any_case: upper and lower case of columns are the same.
        turns: columns with the turns of a chat, and the sets of keys of which a turn has one.
        unless: arguments with which a user names other columns, or brings own code: columns are not judged then.
        works: overrides that may make the backend read another form, by the name of the form.
        since, until: versions that it holds for.
        source: upstream file:line.
    """

    title: str
    reads: str
    source: str
    when: str = ""
    kinds: tuple[str, ...] = ("json",)
    by_ending: bool = False
    plain: bool = False
    prefixes: bool = False
    columns: tuple[tuple[str, ...], ...] = ()
    any_case: bool = False
    turns: tuple[tuple[str, tuple[tuple[str, ...], ...]], ...] = ()
    unless: tuple[str, ...] = ()
    works: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)
    since: str | None = None
    until: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A known form of records.

    Attributes:
        name: how readers refer to it.
        title: for messages.
        columns: those by which it is known.
        keys: of a turn in its first column.
        to_messages: how it becomes chats.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    keys: tuple[str, ...] = ()
    to_messages: str = ""


FORMS = (
    Form(name="messages", title="chats", columns=("messages",), keys=("role", "content")),
    Form(
        name="sharegpt",
        title="ShareGPT's conversations",
        columns=("conversations",),
        keys=("from", "value"),
        to_messages="conversations become messages, from and value become role and content, human and gpt become user "
        "and assistant",
    ),
    Form(
        name="alpaca",
        title="Alpaca's instructions",
        columns=("instruction", "output"),
        to_messages="instruction and input become a message of the user, output one of the assistant",
    ),
    Form(name="tokens", title="token numbers", columns=("input_ids",)),
    Form(name="text", title="texts", columns=("text",)),
)
# The data.format of a form.
_FORMATS = {"indexed": "megatron", "messages": "messages", "text": "text", "tokens": "tokenized"}
_TOKEN_FILES = ("indexed",)


def indexed_reader(when: str, source: str, *, title: str) -> DataReader:
    """Return the reader of Megatron's pairs of token files, named by their common prefix."""
    return DataReader(
        title=title, reads="prefixes of .bin and .idx pairs", when=when, kinds=_TOKEN_FILES, source=source
    )


READERS: dict[str, list[DataReader]] = {}


def declare_readers(backend: str, *readers: DataReader) -> None:
    """Declare what a backend reads data files as."""
    READERS.setdefault(backend, []).extend(reader for reader in readers if reader not in READERS.get(backend, ()))


Tried = Callable[[Mapping[str, Value]], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mismatch:
    """A file that its reader does not read.

    Attributes:
        form: name of the form that it has; empty: unknown.
        what: what the file is, without its name.
        line: of the record; 0: none.
        instead: an entry of data.paths that the reader takes.
        sure: False: the backend may read it nevertheless.
        help: how it becomes what the reader reads.
    """

    what: str
    form: str = ""
    line: int = 0
    instead: str = ""
    sure: bool = True
    help: str = ""


def data_file_findings(
    context: RuleContext, tried: Tried | None = None, reader: DataReader | None = None
) -> Iterator[Finding]:
    """Yield a finding for the data files of this machine that the backend's code does not read.

    Args:
        tried: whether the job passes with other values, without a finding of this kind; None: nothing is offered.
        reader: what reads the files; None: the backend.
    """
    job = context.job
    reader = reader or _reader(context)
    if reader is None or job.data.format in _NO_FILES or ID in job.rules.disable:
        return
    mounted = _mounted(job)
    for path, words in (("data.paths", job.data.paths), ("data.validation_paths", job.data.validation_paths)):
        found: dict[_Mismatch, list[str]] = {}
        for word in [each for each in words if _may_be_here(each, mounted)][:_MOST_FILES]:
            mismatch = _mismatch(word, reader, context)
            if mismatch is not None:
                found.setdefault(mismatch, []).append(word)
        for mismatch, paths in found.items():
            offers = _offers(job, path, words, mismatch, paths, reader) if tried is not None else ()
            works = [values for values in offers if tried is not None and tried(values)]
            yield _finding(context, reader, path, mismatch, paths, works[:_MOST_OFFERS])


def _mounted(job: Job) -> Sequence[str]:
    executor = find_executor(job.cluster.executor)
    return executor.mounted(job) if executor is not None else ()


def _reader(context: RuleContext) -> DataReader | None:
    for reader in READERS.get(context.backend or "", ()):
        fits = context.version is None or in_range(context.version, reader.since, reader.until)
        if fits and holds(reader.when, context):
            return reader
    return None


def _may_be_here(word: str, mounted: Sequence[str]) -> bool:
    """Return whether an entry of data.paths is a path of this machine: no weight, variable, address or volume."""
    if "${" in word or "://" in word or word.replace(".", "", 1).isdigit():
        return False
    return not any(PurePosixPath(word).is_relative_to(folder) for folder in mounted)


def _mismatch(word: str, reader: DataReader, context: RuleContext) -> _Mismatch | None:
    path = os.path.expanduser(word if os.path.exists(word) else word.rpartition("#")[0] or word)
    found = peek(path)
    if reader.kinds == _TOKEN_FILES or (reader.prefixes and (found is None or found.kind == "indexed")):
        return _not_tokens(path)
    if found is None:
        is_prefix = not os.path.exists(path) and os.path.isfile(f"{path}.idx")
        return _Mismatch(what=KINDS["indexed"], form="indexed") if is_prefix else None
    return _not_records(path, found, reader, context)


def _matching(pattern: str) -> list[str]:
    """Return the files of a pattern; none where folders may not be listed, as in the web planner's processes."""
    try:
        return glob(pattern)
    except OSError:
        return []


def _not_tokens(path: str) -> _Mismatch | None:
    """Return why a path is no prefix of token files, if it exists."""
    if _matching(f"{escape(path)}*.idx"):
        return None
    found = peek(path)
    if found is None or path.endswith((".yaml", ".yml")):
        return None
    prefix, ending = os.path.splitext(path)
    if found.kind == "indexed" and ending in (".bin", ".idx"):
        return _Mismatch(what=f"one of the files of a pair, whose prefix is {prefix}", form="indexed", instead=prefix)
    if found.kind in ("folder", "empty folder"):
        inside = sorted(each[: -len(".idx")] for each in _matching(f"{escape(path)}/*.idx"))
        listed = f" with {len(inside)} pairs of token files" if inside else ""
        return _Mismatch(
            what=f"{KINDS[found.kind]}{listed}", form="indexed", instead=inside[0] if len(inside) == 1 else ""
        )
    form = _form(found.columns)
    name = form.name if form is not None else ""
    return _Mismatch(what=_title(found, form), form=name, line=found.line, help=_TOKENIZE)


_TOKENIZE = "tokenize it first, with the backend's preprocess_data.py"


def _not_records(path: str, found: Peek, reader: DataReader, context: RuleContext) -> _Mismatch | None:
    """Return why a file's first record is not what the reader reads."""
    ending = PurePosixPath(path).suffix
    if found.kind in ("empty", "empty folder"):
        return _Mismatch(what=KINDS[found.kind])
    if found.kind == "indexed":
        return _Mismatch(what=KINDS[found.kind], form="indexed")
    if found.kind in ("folder", "compressed"):
        # datasets reads the files of a folder, and unpacks.
        known = not reader.plain and (found.kind == "folder" or not reader.by_ending or ending in ENDINGS)
        return None if known else _Mismatch(what=KINDS[found.kind], help="unpack it" * (found.kind == "compressed"))
    if reader.by_ending:
        kind = ENDINGS.get(ending)
        if kind is None:
            what = f"a file whose name ends in {escaped(ending)}" if ending else "a file whose name has no ending"
            return _Mismatch(what=what, sure=False, help=f"it goes by the ending: {', '.join(ENDINGS)}")
        if kind == "text":
            return _lines_of_text(path, found, reader)
        if kind != found.kind:
            read_as = "" if found.problem else f" in a file that is read as {_READ_AS[kind]}"
            return _Mismatch(what=f"{_content(found)}{read_as}", line=found.line)
    elif found.kind not in reader.kinds:
        return _Mismatch(what=_content(found), line=found.line)
    if reader.plain and found.spread:
        return _Mismatch(what="JSON whose records are not one line each", line=found.line)
    if any(context.given(name) for name in reader.unless) or not found.complete or not found.columns:
        return None
    return _other_columns(found, reader)


_READ_AS = {"json": "JSON", "parquet": "Parquet", "arrow": "Arrow", "csv": "CSV"}


def _lines_of_text(path: str, found: Peek, reader: DataReader) -> _Mismatch | None:
    if not any({*each} <= {"text"} for each in reader.columns):
        return _Mismatch(what="a file that is read as lines of text", line=found.line)
    if found.kind != "json":
        return None
    what = "JSON in a file that is read as text, so that braces and names are learned, too"
    return _Mismatch(what=what, line=found.line, sure=False, help=f"name it {escaped(PurePosixPath(path).stem)}.jsonl")


def _content(found: Peek) -> str:
    return f"{KINDS[found.kind]}: {found.problem}" if found.problem else KINDS[found.kind]


def _other_columns(found: Peek, reader: DataReader) -> _Mismatch | None:
    names = {name.lower() if reader.any_case else name for name in found.columns}
    if reader.columns and not any(names.issuperset(each) for each in reader.columns):
        form = _form(found.columns)
        name = form.name if form is not None else ""
        return _Mismatch(what=_title(found, form), form=name, line=found.line, help=_rewrite(form, reader))
    for column, allowed in reader.turns:
        first = _first_turn(found.record, column)
        if first is not None and not any({*keys} <= first.keys() for keys in allowed):
            form = next((each for each in FORMS if each.keys and {*each.keys} <= first.keys()), None)
            name = form.name if form is not None and form.columns[0] == column else ""
            what = f"{column} whose turns have {_listed(tuple(map(str, first)))}"
            return _Mismatch(what=what, form=name, line=found.line, help=_rewrite(form, reader))
    return None


def _rewrite(form: Form | None, reader: DataReader) -> str:
    wants_chats = any("messages" in each for each in reader.columns)
    return form.to_messages if form is not None and wants_chats else ""


def _first_turn(record: Mapping[str, Any] | None, column: str) -> Mapping[str, Any] | None:
    turns = (record or {}).get(column)
    first = turns[0] if isinstance(turns, list) and turns else None
    return first if isinstance(first, dict) else None


def _form(columns: Sequence[str]) -> Form | None:
    return next((form for form in FORMS if columns and {*form.columns} <= {*columns}), None)


def _title(found: Peek, form: Form | None) -> str:
    if not found.columns:
        return _content(found)
    columns = f"{'column' if len(found.columns) == 1 else 'columns'} {_listed(found.columns)}"
    return f"{form.title} ({columns})" if form is not None else f"records with the {columns}"


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MOST_COLUMNS
    return ", ".join(escaped(name[:_LONGEST]) for name in names[:_MOST_COLUMNS]) + (
        f", {more} more" if more > 0 else ""
    )


def _finding(
    context: RuleContext,
    reader: DataReader,
    path: str,
    mismatch: _Mismatch,
    files: Sequence[str],
    works: Sequence[Mapping[str, Value]],
) -> Finding:
    executor = find_executor(context.job.cluster.executor)
    here = executor is None or executor.here
    named = escaped(files[0]) + (f":{mismatch.line}" if mismatch.line else "")
    others = f" (and {len(files) - 1} more)" if len(files) > 1 else ""
    message = f"{named}{others}: {mismatch.what}; {reader.title} reads {reader.reads}"
    message += f": {mismatch.help}" if mismatch.help else ""
    message += "" if here else " (the file of this machine; the nodes may have another)"
    return Finding(
        rule=ID,
        severity="error" if mismatch.sure and here else "warning",
        message=message,
        fields=(path, "data.format") if context.job.data.format is not None else (path,),
        fixes=tuple(
            Fix(
                overrides=tuple(f"{name}={override_text(value)}" for name, value in values.items()),
                affects_training=any(affects_training(name, context.backend) for name in values),
            )
            for values in works
        ),
        source=reader.source,
    )


def _offers(
    job: Job, path: str, words: Sequence[str], mismatch: _Mismatch, files: Sequence[str], reader: DataReader
) -> Iterator[Mapping[str, Value]]:
    """Yield values with which the backend may read the files, to be tried."""
    if mismatch.instead:
        yield {path: tuple(mismatch.instead if word in files else word for word in words)}
    elif mismatch.form:
        if _FORMATS.get(mismatch.form, job.data.format) != job.data.format:
            yield {"data.format": _FORMATS[mismatch.form]}
        if mismatch.form in reader.works:
            yield reader.works[mismatch.form]
