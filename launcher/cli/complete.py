"""Answers a shell that completes a command line of `launch`; argcomplete's scripts call it (launch completion)."""

import os
import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from argcomplete.finders import CompletionFinder

from launcher.completion import index as stored
from launcher.completion.candidates import candidates

# What ends the command before ours on a line: zsh hands over the whole line.
_SEPARATORS = ("&&", "||", ";", "|", "&", "(", "{", "do", "then", "else", "!", "time", "sudo", "nice", "exec")


def main() -> int:
    """Write the completions of the line in the environment, and leave the process."""
    try:
        _Finder()(SimpleNamespace(prefix_chars=""))  # type: ignore[arg-type]
    except Exception:
        if "_ARC_DEBUG" in os.environ:
            raise
    return 1


class _Finder(CompletionFinder):
    """Splits lines, quotes and writes as argcomplete does; what completes a word is in the index, not in parsers."""

    def _get_completions(
        self, comp_words: Sequence[str], cword_prefix: str, cword_prequote: str, last_wordbreak_pos: int | None
    ) -> list[str]:
        index = _index()
        found = candidates(index, _own_words(comp_words), cword_prefix, _part)
        self._display_completions = dict(found)
        texts = self.filter_completions([text for text, _ in found])
        return self.quote_completions(texts, cword_prequote, last_wordbreak_pos)


def _own_words(words: Sequence[str]) -> list[str]:
    """Return the words after the program's name in the last command of a line."""
    for at in range(len(words) - 1, -1, -1):
        before = words[at - 1] if at else ";"
        starts = before in _SEPARATORS or before.endswith(";") or "=" in before
        if os.path.basename(words[at]) == "launch" and starts:
            return list(words[at + 1 :])
    return list(words[1:])


def _index() -> stored.Index:
    """Return the index; where there is none it is made now, and one that is not current beside its use."""
    found = stored.read()
    if found is None:
        from launcher.cli.completion_index import make

        return make()
    if not stored.is_current(found):
        _make_beside()
    return found


def _part(name: str) -> stored.Index:
    found = stored.read(name)
    if found is None:
        from launcher.cli.completion_index import make_part

        return make_part(name)
    return found


def _make_beside() -> None:
    """Make the index in a process of its own, which does not hold the shell's streams."""
    import subprocess

    environment: dict[str, Any] = {key: value for key, value in os.environ.items() if key != "_ARGCOMPLETE"}
    subprocess.Popen(
        [sys.executable, "-P", "-m", "launcher.cli.completion_index"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env=environment,
    )
