"""Notes on scripts for `sh` that use what only bash has: dash, which is `sh` on Debian and Ubuntu, refuses it."""

import re

from launcher.importing.notes import Note

_SH = re.compile(r"#!\s*(?:\S*/)?(?:env\s+)?(?:sh|dash)\b")
# What only bash has, at the start of a line.
_BASH = {
    "an array": re.compile(r"\s*(?:export\s+)?\w+\+?=\("),
    "[[": re.compile(r"\s*(?:(?:el)?if|while|until)?\s*\[\[\s"),
    "source": re.compile(r"\s*source\s"),
    "declare": re.compile(r"\s*declare\s"),
}


def bash_under_sh(text: str, file: str) -> list[Note]:
    """Return a note on the first line that needs bash, if the script's first line names `sh`."""
    if not _SH.match(text) or "<<" in text:  # a here-document holds lines of another script
        return []
    for number, line in enumerate(text.splitlines(), 1):
        name = next((name for name, pattern in _BASH.items() if pattern.match(line)), None)
        if name is not None:
            message = f"{name} needs bash, and the first line names sh: where sh is dash (Debian, Ubuntu), it ends here"
            return [Note(message=message, where=f"{file}:{number}", works=("#!/bin/bash in the first line",))]
    return []
