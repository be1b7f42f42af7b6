"""Placeholders for values that a script leaves unset (`$DATA`, `$(date)`): kept in evaluation, shown as typed."""

import re

# Variables that every shell sets: they become references (`${HOME}`) that a plan resolves, without a warning.
INHERITED = frozenset({"HOME", "USER", "LOGNAME", "TMPDIR", "HOSTNAME", "PATH", "PYTHONPATH", "LD_LIBRARY_PATH"})
_OPEN, _CLOSE = "\ue000", "\ue001"
# White space inside a placeholder or a `<your path>` blank does not separate words.
KEPT_BLANK = "\ue002"
_KEPT = {" ": KEPT_BLANK, "\n": "\ue003", "\t": "\ue004"}
_TO_KEPT, _FROM_KEPT = str.maketrans(_KEPT), str.maketrans({kept: white for white, kept in _KEPT.items()})
# Ends the placeholder of a value that the script computes in a way that is not followed.
_COMPUTED = "\ue005"
_FROM_KEPT[ord(_COMPUTED)] = ""
_MARKED = re.compile(f"{_OPEN}([^{_CLOSE}]*){_CLOSE}")
# In the text of a script, the signs of a `<your path>` blank that the grammar takes as parts of a word.
BLANK_LEFT, BLANK_RIGHT, BLANK_SPACE = "\x02", "\x03", "\x04"
# Quoted where it was written (`D="<path to data>"`), its spaces are those of the text.
_BLANK = re.compile(f"<([^<>\n]*{KEPT_BLANK}[^<>\n]*)>|(?<=\\w )<([A-Za-z]\\w*(?: [\\w./-]+)+)>(?![\\w./])")
_NAME = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-])")


def placeholder(typed: str, *, computed: bool = False) -> str:
    """Return a placeholder for typed text such as `$DATA` or `$(date)`.

    Args:
        computed: it is the value of a variable that the script sets, not of one that its user would set.
    """
    return f"{_OPEN}{shown(typed).translate(_TO_KEPT)}{_COMPUTED * computed}{_CLOSE}" if typed else ""


def is_open(text: str) -> bool:
    """Return whether a part of the text is unknown."""
    return _OPEN in text


def shown(text: str) -> str:
    """Return the text with placeholders as they were typed; `$A` before a letter gets braces, to end its name there."""
    return _MARKED.sub(_with_braces, text).translate(_FROM_KEPT)


def retyped(text: str) -> str:
    """Return the text as script source, as `shown`; blanks stay words."""
    return _BLANK.sub(_as_word, _MARKED.sub(_with_braces, text)).translate(_FROM_KEPT)


def _as_word(blank: "re.Match[str]") -> str:
    inner = blank.group(1) or blank.group(2).replace(" ", BLANK_SPACE)
    return BLANK_LEFT + inner.replace(KEPT_BLANK, BLANK_SPACE) + BLANK_RIGHT


def _with_braces(found: "re.Match[str]") -> str:
    typed = found.group(1).removesuffix(_COMPUTED)
    follows = found.string[found.end() : found.end() + 1]
    simple = re.fullmatch(r"\$(\w+)", typed) if follows.isalnum() or follows in ("_", "[") else None
    return f"${{{simple.group(1)}}}" if simple and follows else typed


def unknown_parts(text: str) -> list[str]:
    """Return the placeholders in a text, as they were typed."""
    return [shown(typed) for typed in _MARKED.findall(text)]


def emptied(text: str) -> str:
    """Return the text as in bash: unset variables are empty."""
    return _MARKED.sub("", text)


def has_output(text: str) -> bool:
    """Return whether a part of the text is computed, such as a command's output: it cannot be treated as empty."""
    parts = _MARKED.findall(text)
    return any(typed.startswith(("$(", "`", "<(", "$?", "${?")) or typed.endswith(_COMPUTED) for typed in parts)


def names(text: str) -> tuple[str, ...]:
    """Return the variables (or the typed command substitutions) that the text depends on."""
    found = []
    for typed in _MARKED.findall(text):
        match = _NAME.match(typed)
        found.append(match.group(1) if match and not typed.startswith("$(") else shown(typed))
    return tuple(dict.fromkeys(found))


def separable(text: str) -> list[str] | None:
    """Return the open words of a text and the text around them; None if there are none, or one is part of a word."""
    parts = re.split(rf"((?<!\S){_OPEN}[^{_CLOSE}]*{_CLOSE}(?!\S))", text)
    return None if is_open("".join(parts[::2])) or not is_open(text) or only(text) else parts


def only(text: str) -> bool:
    """Return whether the whole text is one placeholder."""
    return _MARKED.fullmatch(text) is not None
