"""The overrides that a session may send: bounded, and without what would read files or the environment here."""

import re
from collections.abc import Sequence

from launcher.compose.search_path import GROUPS
from launcher.job import fields
from launcher.job.secret import without_secrets
from launcher.records import dataclass

# Far above a job with every argument of an imported script (about 250), far below what costs seconds to parse.
MOST_WORDS, LONGEST_WORD, LONGEST_STATE = 600, 8_000, 60_000
_WORD = re.compile(r"(?P<sign>\+\+|\+)?(?P<key>[A-Za-z_][\w.\-]*)=(?P<value>.*)", re.DOTALL)
_NAME = re.compile(r"[A-Za-z0-9][\w.\-]*")
_HUB = re.compile(r"[A-Za-z0-9][\w.\-]*/[A-Za-z0-9][\w.\-]*")
_FILES = (".yaml", ".yml", ".json", ".sh", ".bash")
# An interpolation; `\${X}` is text, a reference that the written script resolves where it runs.
_INTERPOLATION = re.compile(r"(?<!\\)(\\\\)*\$\{")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedWord:
    """An override that is not accepted, and why."""

    word: str
    why: str


def refused(words: Sequence[str]) -> list[RefusedWord]:
    """Return the overrides that a session may not send, with reasons; an empty list: all are accepted."""
    if len(words) > MOST_WORDS:
        return [RefusedWord(word="", why=f"{len(words):,} overrides; at most {MOST_WORDS}")]
    if sum(map(len, words)) > LONGEST_STATE:
        return [RefusedWord(word="", why=f"{sum(map(len, words)):,} characters; at most {LONGEST_STATE:,}")]
    found = ((word, _why(word)) for word in words)
    return [RefusedWord(word=_shown(word), why=why) for word, why in found if why]


def _shown(word: str) -> str:
    text = without_secrets([_CONTROL.sub("?", word)])[0]
    return text if len(text) <= 120 else f"{text[:119]}…"


def _why(word: str) -> str:
    """Return why an override is refused; empty: it is not."""
    match = _WORD.fullmatch(word)
    if match is None:
        return "not of the form key=value" if not word.startswith("~") else "fields cannot be removed; set a value"
    if len(word) > LONGEST_WORD:
        return f"{len(word):,} characters; at most {LONGEST_WORD:,}"
    if _CONTROL.search(word):
        return "holds a control character"
    key, value = match["key"], match["value"]
    if key in GROUPS:
        return _why_option(key, value)
    # A misspelt field is composed, which suggests the right one; a section or Hydra's own group never is.
    if key.partition(".")[0] == "hydra" or any(path.startswith(f"{key}.") for path in fields()):
        return "set one field an override, such as parallel.tp=2"
    if _INTERPOLATION.search(value):
        return "interpolations (${…}) would read this server; write \\${NAME} for a variable of the job's own script"
    if without_secrets([word]) != [word]:
        return "looks like a secret, which a link would show: name it in the environment of the job instead"
    return ""


def _why_option(group: str, value: str) -> str:
    if group == "job":
        return "files of the server are not read; use Import"
    if _NAME.fullmatch(value) and not value.endswith(_FILES):
        return ""
    if group == "model" and _HUB.fullmatch(value) and not value.endswith(_FILES):
        return ""
    return f"takes the name of one {group}; files of the server are not read"
