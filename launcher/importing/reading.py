"""Reads untrusted files: size, encoding and YAML are limited before the content is used."""

import codecs
import json
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from launcher.budgets import BUDGETS, BeyondBudget, check_yaml, load_json
from launcher.importing.notes import ImportRefused, Note, no_training, refuse

LARGEST = BUDGETS["script bytes"].limit
# Keys that name the files which a configuration extends.
BASES = ("base_config", "extends", "bases")
# Length limit for arguments parsed as YAML scalars: numbers and dates are short, lists and mappings are no scalars.
LONGEST_SCALAR = 200
_COLLECTIONS = ("[", "{", "&", "*", "!", "-	", "- ", "? ")
# A line that is a comment, or ends in one: before a quote, `#` may be text.
_COMMENT = re.compile(rb"(?:[^'\"#]*\s)?#")
_LOGS = (".log", ".out")
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
# Encodings of scripts that are not UTF-8, for iconv.
_OTHERS = ("GB18030", "ISO-8859-1")


def read_text(path: Path) -> str:
    """Return the text of a file.

    Raises:
        ImportRefused: the file cannot be read, is too large, empty or not text.
    """
    try:
        if path.is_dir():
            scripts = any(path.rglob("*.sh"))
            works = (f"launch check {shlex.quote(f'{path}/**/*.sh')}",) if scripts else ()
            raise no_training("this is a folder, not a file", str(path), *works)
        # `<(command)` and /dev/stdin have a writer; any other pipe or device may never end.
        if not path.is_file() and path.exists() and not str(path).startswith(("/dev/fd/", "/dev/stdin", "/proc/self/")):
            raise no_training("this is a pipe or device, not a file", str(path))
        with path.open("rb") as stream:
            content = stream.read(LARGEST + 1)
        if len(content) > LARGEST:
            size = f"the file has {path.stat().st_size / 2**20:.0f} MiB" if path.is_file() else "it does not end"
            raise no_training(f"{size}; scripts and configurations up to {LARGEST // 2**20} MiB are read", str(path))
    except OSError as error:
        raise refuse(f"the file cannot be read: {error.strerror or error}", str(path)) from None
    if not content.strip():
        raise no_training("the file is empty", str(path))
    if path.suffix in _LOGS:  # progress bars cut characters, terminals write zero bytes
        return content.decode("utf-8-sig", errors="replace").replace("\r\n", "\n")
    if content.startswith(_UTF16):  # written by PowerShell's `>` and old editors
        return _decoded(content, "utf-16", path)
    if b"\0" in content:
        raise no_training("the file is not text but binary", str(path))
    return _decoded(content, "utf-8-sig", path)


def _decoded(content: bytes, encoding: str, path: Path) -> str:
    try:
        return content.decode(encoding).replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        if encoding != "utf-16" and not _outside_comments(content):
            return content.decode(encoding, errors="replace").replace("\r\n", "\n")
        line = content.count(b"\n", 0, error.start) + 1
        name = encoding.removesuffix("-sig").upper()
        works = () if encoding == "utf-16" else as_utf8(content, path)
        raise refuse(f"the file is not {name} text", f"{path}:{line}", *works) from None


def _outside_comments(content: bytes) -> bool:
    """Return whether a line that is not UTF-8 has such text before its comment."""
    lines = (line for line in content.split(b"\n") if not _is_utf8(line))
    return any(_COMMENT.match(line) is None or not _is_utf8(line.partition(b"#")[0]) for line in lines)


def _is_utf8(content: bytes) -> bool:
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def as_utf8(content: bytes, path: Path) -> tuple[str, ...]:
    """Return the commands that write a file as UTF-8, for encodings that it may have."""
    name = shlex.quote(str(path))
    new = shlex.quote(str(path.with_name(f"utf8_{path.name}")))
    return tuple(f"iconv -f {each} -t UTF-8 {name} > {new}" for each in _OTHERS if _is_in(content, each))


def _is_in(content: bytes, encoding: str) -> bool:
    try:
        content.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True


def encoding_notes(path: Path) -> Iterator[Note]:
    """Yield notes on what bash reads otherwise than it is read here: line ends, byte order marks, other encodings."""
    content = path.read_bytes()[:LARGEST] if path.is_file() else b""
    name, where = shlex.quote(str(path)), str(path)
    if b"\r\n" in content:
        message = "its lines end as on Windows (CRLF): bash takes the carriage return as a part of a line's last word"
        yield Note(message=message, where=where, works=(f"sed -i 's/\\r$//' {name}",))
    if content.startswith(codecs.BOM_UTF8):
        message = "it starts with a byte order mark: bash takes that as a part of the first word"
        yield Note(message=message, where=f"{path}:1", works=(rf"sed -i '1s/^\xef\xbb\xbf//' {name}",))
    if content.startswith(_UTF16):
        new = shlex.quote(str(path.with_name(f"utf8_{path.name}")))
        message = "it is UTF-16 text, which bash does not read"
        yield Note(message=message, where=where, works=(f"iconv -f UTF-16 -t UTF-8 {name} > {new}",))
    elif not _is_utf8(content):
        message = "its comments are not UTF-8 text: they are read without these characters"
        yield Note(message=message, where=where, works=as_utf8(content, path))


def parse_yaml(text: str, file: str) -> Any:
    """Return the content of a YAML text: plain data only, limited in size by the length of the text.

    Raises:
        ImportRefused: it is not YAML, or its aliases expand beyond the limit.
    """
    import yaml

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        check_yaml(text, file)
        node = yaml.compose(text, Loader=loader)
        if node is not None and _holds_itself(node, set(), set()):
            raise refuse("its aliases refer to the node that contains them", file)
        return yaml.load(text, Loader=loader)
    except BeyondBudget as error:
        raise refuse(error.message, error.where, error.works) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        what = error.problem
        if error.context_mark is not None and "end of stream" in str(error.problem):
            mark, what = error.context_mark, f"{error.context}: it does not end"  # position of the opening token
        where = f"{file}:{mark.line + 1}" if mark is not None else file
        raise refuse(f"the file is not YAML: {what}", where) from None
    except yaml.YAMLError as error:
        raise refuse(f"the file is not YAML: {str(error).splitlines()[0]}", file) from None
    except (RecursionError, ValueError, TypeError) as error:
        why = "the file is nested too deeply" if isinstance(error, RecursionError) else f"the file is not YAML: {error}"
        raise refuse(why, file) from None


@lru_cache(maxsize=4096)
def line_of_key(text: str, path: str) -> int:
    """Return the line (from 1) of a nested key of a YAML text, or of the nearest section above it; 0: neither is there.

    An entry of a list is found by its `type`.
    """
    node, line = _composed(text), 0
    for part in path.split("."):
        found = next((pair for pair in _pairs(node) if pair[0].value == part), None)
        if found is None:
            break
        line, node = found[0].start_mark.line + 1, found[1]
    return line


def _pairs(node: Any) -> list[Any]:
    """Return the (key, value) nodes of a mapping; of a list, each entry's type with the entry."""
    children = node.value if node is not None and isinstance(node.value, list) else []
    if all(isinstance(child, tuple) for child in children):
        return list(children)
    entries = [child for child in children if not isinstance(child, tuple) and isinstance(child.value, list)]
    return [
        (value, entry)
        for entry in entries
        for pair in entry.value
        if isinstance(pair, tuple)
        for key, value in [pair]
        if key.value == "type"
    ]


@lru_cache(maxsize=4)
def _composed(text: str) -> Any:
    """Return the nodes of a YAML text; None: it is none, or too large to be read again."""
    import yaml

    try:
        check_yaml(text, "")
        return yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, BeyondBudget, RecursionError, ValueError):
        return None


def repeated_keys(text: str, file: str) -> list[Note]:
    """Return a note for each duplicate key of a YAML mapping; the last one counts, as in upstream parsers.

    Args:
        text: accepted by `parse_mapping`; JSON is parsed as YAML, which knows the lines.
    """
    import yaml

    notes: list[Note] = []
    try:
        nodes: list[Any] = [yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))]
    except yaml.YAMLError:  # JSON that YAML cannot read: a key of more than 1,024 characters, a tab
        return _repeated_in_json(text, file)
    seen: set[int] = set()
    while nodes:
        node = nodes.pop()
        if node is None or id(node) in seen or not isinstance(node.value, list):
            continue
        seen.add(id(node))
        keys: set[str] = set()
        for child in node.value:
            if isinstance(child, tuple) and isinstance(child[0].value, str):
                name = child[0].value
                if name in keys and name != "<<":
                    notes.append(_repeated(name, f"{file}:{child[0].start_mark.line + 1}"))
                keys.add(name)
            nodes += child if isinstance(child, tuple) else (child,)
    return notes


def _repeated_in_json(text: str, file: str) -> list[Note]:
    notes: list[Note] = []

    def read(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        count = Counter(name for name, _ in pairs)
        notes.extend(_repeated(name, file) for name in count if count[name] > 1)
        return dict(pairs)

    json.loads(text, object_pairs_hook=read)
    return notes


def _repeated(name: str, where: str) -> Note:
    return Note(message=f"{name} is given twice in its section: the last one is used", where=where)


def _holds_itself(node: Any, above: set[int], done: set[int]) -> bool:
    if id(node) in above:
        return True
    if id(node) in done or not isinstance(node.value, list):
        return False
    above.add(id(node))
    parts = (part for child in node.value for part in (child if isinstance(child, tuple) else (child,)))
    found = any(_holds_itself(part, above, done) for part in parts)
    above.discard(id(node))
    done.add(id(node))
    return found


def parse_json(text: str, file: str) -> Any:
    """Return the content of a JSON text.

    Raises:
        ImportRefused: it is not JSON.
    """
    try:
        return load_json(text, file)
    except json.JSONDecodeError as error:
        raise refuse(f"the file is not JSON: {error.msg}", f"{file}:{error.lineno}") from None
    except BeyondBudget as error:
        raise refuse(error.message, error.where, error.works) from None


def parse_mapping(text: str, file: str) -> Mapping[str, Any]:
    """Return the mapping of a YAML or JSON text.

    Raises:
        ImportRefused: it is neither, or not a mapping.
    """
    tree = parse_json(text, file) if file.endswith(".json") else parse_yaml(text, file)
    if not isinstance(tree, dict):
        raise refuse("holds no settings: a mapping is expected at the top", file)
    return {str(key): value for key, value in tree.items()}


def parse_scalar(text: str) -> Any:
    """Return an argument as a YAML scalar, or unchanged if it is none."""
    import yaml

    try:
        value = yaml.safe_load(text) if len(text) < LONGEST_SCALAR and not text.startswith(_COLLECTIONS) else text
    except (yaml.YAMLError, ValueError):
        return text
    return text if isinstance(value, (dict, list)) else value


def with_base(tree: Mapping[str, Any], file: str, depth: int = 0) -> dict[str, Any]:
    """Return a configuration merged over the files of its `base_config` (paths relative to the file).

    Raises:
        ImportRefused: a base cannot be read, or bases include each other.
    """
    key = next((key for key in BASES if isinstance(tree.get(key), (str, list))), BASES[0])
    bases = tree.get(key)
    entries = {name: value for name, value in tree.items() if name != key}
    if bases is None:
        return entries
    if depth > 10:
        raise refuse(f"{key}: the files include each other", file)
    merged: dict[str, Any] = {}
    for name in bases if isinstance(bases, list) else [bases]:
        path = Path(file).parent / str(name)
        try:
            text = read_text(path)
        except ImportRefused as error:
            raise refuse(f"{key} {name}: {error.notes[0].message}", file) from None
        merged = merge(merged, with_base(parse_mapping(text, str(path)), str(path), depth + 1))
    return merge(merged, entries)


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` overridden by the values of `over`, section by section."""
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        merged[key] = merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged
