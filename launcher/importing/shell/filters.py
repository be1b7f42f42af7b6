"""Text filters in pipelines (`cut`, `sed s/a/b/`, `grep -o`, `wc -l` …), in their simple forms."""

import re
from collections.abc import Callable, Sequence

from launcher.importing.shell import patterns
from launcher.importing.shell.posix import searching
from launcher.importing.shell.sed import edited, words_of

# Limits for the text of a variable and a pattern of a script; settings of a training are shorter.
_LONGEST_TEXT = 20_000
_IS_QUIET = re.compile(r"-[a-zA-Z]*q[a-zA-Z]*").fullmatch
_AWK = re.compile(r"\{\s*print\s+(?P<field>\$\d+|\$?NF|\$\(NF-\d+\))\s*;?\s*\}")


_COUNTS: dict[str, Callable[[str], int]] = {
    "-l": lambda text: text.count("\n"),
    "-w": lambda text: len(text.split()),
    "-c": lambda text: len(text.encode()),
}
_CHARACTERS = {"[:space:]": " \t\n\r\v\f", "[:blank:]": " \t", "[:digit:]": "0123456789"}


def grep(arguments: Sequence[str], given: str | None) -> str | None:
    """Return the lines that `grep` prints; None if unknown, empty if nothing matches."""
    letters, patterns_given, rest = "", [], list(arguments)
    while rest and rest[0].startswith("-") and rest[0] not in ("-", "--"):
        word = rest.pop(0)
        if word.startswith("--") or set(word[1:]) - set("qiEFwxovePsh"):
            return None
        letters += word[1:]
        if word.endswith("e") and rest:
            patterns_given.append(rest.pop(0))
    rest = rest[1:] if rest[:1] == ["--"] else rest
    patterns_given = patterns_given or rest[:1]
    if given is None or len(patterns_given) != 1 or len(given) > _LONGEST_TEXT or len(rest) > 1:
        return None
    pattern = re.escape(patterns_given[0]) if "F" in letters else patterns_given[0]
    found = searching(pattern, extended="E" in letters or "P" in letters or "F" in letters)
    if found is None:
        return None
    pattern = rf"\b(?:{found.pattern})\b" if "w" in letters else found.pattern
    found = re.compile(rf"^(?:{pattern})$" if "x" in letters else pattern, re.IGNORECASE if "i" in letters else 0)
    lines = [line for line in given.splitlines() if (found.search(line) is None) == ("v" in letters)]
    if "o" in letters:
        lines = [match.group() for line in lines for match in found.finditer(line) if match.group()]
    return "".join(f"{line}\n" for line in lines)


def _sed(arguments: Sequence[str], given: str | None) -> str | None:
    found = words_of(arguments)
    return None if given is None or found is None or found.files or found.in_place else edited(given, found)


def _lines(text: str) -> list[str]:
    """Return the lines of a text; a final line end starts no further line."""
    return text.removesuffix("\n").split("\n") if text else []


def _cut(arguments: Sequence[str], given: str | None) -> str | None:
    options = re.fullmatch(
        r"(?=.*-[cf] ?[\d-])(?:-d ?(?P<by>.) ?|-(?P<what>[cf]) ?(?P<ranges>[\d,-]+) ?)+", " ".join(arguments)
    )
    if given is None or options is None:
        return None
    found = [re.fullmatch(r"(\d*)(-?)(\d*)", part) for part in options.group("ranges").split(",")]
    if not all(part is not None and part.group().strip("-") for part in found):
        return None
    ends = [(int(part[1] or 1), int(part[3] or 0) or (None if part[2] else int(part[1]))) for part in found if part]
    by = "" if options.group("what") == "c" else options.group("by") or "\t"
    output = ""
    for line in given.splitlines():
        parts = line.split(by) if by else list(line)
        kept = [at for first, last in ends for at in range(len(parts))[max(first - 1, 0) : last]]
        output += f"{by.join(parts[at] for at in sorted(set(kept))) if len(parts) > 1 or not by else line}\n"
    return output


def _tr(arguments: Sequence[str], given: str | None) -> str | None:
    if len(arguments) == 3 and arguments[0] == "-s":  # changed, then squeezed
        changed = _tr(arguments[1:], given)
        return _tr(["-s", arguments[2]], changed)
    if given is None or len(arguments) != 2:
        return None
    first, second = (patterns.ansi(word) for word in arguments)
    if first in ("-cd", "-dc"):
        kept = searching(f"[{_CHARACTERS.get(second, second)}]", extended=True)
        return None if kept is None or "[:" in kept.pattern else "".join(kept.findall(given))
    if first.startswith("-") and first not in ("-d", "-s", "-"):
        return None
    if first in ("-d", "-s"):
        second = _CHARACTERS.get(second, second)
        if "-" in second[1:-1] or "[:" in second:
            return None
    if first == "-d":
        return "".join(char for char in given if char not in second)
    if first == "-s":
        return re.sub(f"([{re.escape(second)}])\\1+", r"\1", given)
    ranges = {("A-Z", "a-z"): str.lower, ("a-z", "A-Z"): str.upper, ("[:upper:]", "[:lower:]"): str.lower}
    change = {**ranges, ("[:lower:]", "[:upper:]"): str.upper}.get((first, second))
    if change is not None:
        return change(given)
    if not second or any(char in first + second for char in "[]") or "-" in first[1:-1] + second[1:-1]:
        return None
    second = second.ljust(len(first), second[-1])
    return given.translate(str.maketrans(first, second[: len(first)]))


def _wc(arguments: Sequence[str], given: str | None) -> str | None:
    count = _COUNTS.get(" ".join(arguments))
    return None if given is None or count is None else f"{count(given)}\n"


def _head(arguments: Sequence[str], given: str | None) -> str | None:
    count = _line_count(arguments)
    return None if given is None or count is None else "".join(given.splitlines(keepends=True)[:count])


def _tail(arguments: Sequence[str], given: str | None) -> str | None:
    count = _line_count(arguments)
    return None if given is None or not count else "".join(given.splitlines(keepends=True)[-count:])


def _line_count(arguments: Sequence[str]) -> int | None:
    found = re.fullmatch(r"-(?:n ?)?(\d+)", " ".join(arguments))
    return int(found.group(1)) if found else None if arguments else 10


def _awk(arguments: Sequence[str], given: str | None) -> str | None:
    """`awk -F, '{print $2}'` and `{print NF}`: fields of lines."""
    options = re.fullmatch(r"(?:-F ?(?P<by>\S|\[ ]))? ?(?P<program>\{.*\})", " ".join(arguments).strip())
    program = None if options is None else _AWK.fullmatch(options.group("program"))
    if given is None or options is None or program is None:
        return None
    by, field = options.group("by"), program.group("field")
    by = " " if by == "[ ]" else by
    lines = [line.split(by) if by else line.split() for line in given.splitlines()]
    if field == "NF":
        return "".join(f"{len(line)}\n" for line in lines)
    minus = re.search(r"-(\d+)", field)
    at = -1 - int(minus.group(1)) if minus else -1 if field == "$NF" else int(field[1:]) - 1
    if at == -1 and field == "$0":
        return given
    if minus and any(len(line) < -at for line in lines):
        return None  # $(NF-1) of a single field is $0, the whole line; $(NF-2) is an error
    return "".join(f"{line[at] if -len(line) <= at < len(line) else ''}\n" for line in lines)


def _sort(arguments: Sequence[str], given: str | None) -> str | None:
    letters = "".join(word.removeprefix("-") for word in arguments)
    if given is None or set(letters) - set("urn") or not all(word.startswith("-") for word in arguments):
        return None
    lines = _lines(given)
    if "n" in letters and not all(re.fullmatch(r"\d+", line) for line in lines):
        return None
    lines = sorted(dict.fromkeys(lines) if "u" in letters else lines, reverse="r" in letters)
    lines = sorted(lines, key=int, reverse="r" in letters) if "n" in letters else lines
    return "".join(f"{line}\n" for line in lines)


def _xargs(arguments: Sequence[str], given: str | None) -> str | None:
    """`xargs` and `xargs echo` join words."""
    is_plain = given is not None and not re.search(r"[\"'\\]", given)
    return " ".join(given.split()) + "\n" if given is not None and is_plain and arguments in ([], ["echo"]) else None


def _paste(arguments: Sequence[str], given: str | None) -> str | None:
    found = re.fullmatch(r"-s ?-?d ?(\S)(?: -)?", " ".join(arguments))
    return None if given is None or found is None else found.group(1).join(_lines(given)) + "\n"


FILTERS: dict[str, Callable[[Sequence[str], str | None], str | None]] = {
    "grep": lambda arguments, given: None if any(map(_IS_QUIET, arguments)) else grep(arguments, given),
    "egrep": lambda arguments, given: grep(["-E", *arguments], given),
    "sed": _sed,
    "cut": _cut,
    "tr": _tr,
    "wc": _wc,
    "head": _head,
    "tail": _tail,
    "awk": _awk,
    "sort": _sort,
    "xargs": _xargs,
    "paste": _paste,
}
