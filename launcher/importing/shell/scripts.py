"""Scripts inside a script (`bash -c TEXT`, `bash FILE ARGS`, `source FILE`): their text, if it can be read."""

import itertools
import re
from collections.abc import Sequence
from pathlib import Path

from launcher.importing.shell.expand import Expander
from launcher.importing.shell.grammar import Node, text_of
from launcher.importing.shell.parts import between
from launcher.importing.shell.placeholders import is_open, retyped
from launcher.importing.shell.state import State

SHELLS = ("bash", "sh", "zsh")
_SCRIPTS = (".sh", ".slurm", ".sbatch", ".bash")
# Programs whose last word is a command line for a remote host.
_REMOTE = ("ssh", "pssh", "parallel-ssh", "pdsh", "clush")
_TERMINALS = ("tmux", "screen")
# Programs that start a script given as one of their words.
_STARTERS = ("sbatch", "srun", "nohup", "setsid", "sudo", "time", "exec")
_GIVEN = re.compile(r"(?:--env=|-e)?([A-Za-z_]\w*)=(.*)", re.DOTALL)
_LARGEST = 2_000_000
_MOST_ABOVE = 4


def inner_script(words: Sequence[str]) -> str | None:
    """Return the text of `bash -c TEXT`, also after srun, docker, ssh and the like."""
    for index, word in enumerate(words[:-2]):
        at = index + 1
        while _is_shell(word) and at < len(words) - 1 and words[at].startswith("-"):
            if not words[at].startswith("--") and words[at].endswith("c"):
                return retyped(words[at + 1])
            at += 1
    if words and words[0].rpartition("/")[2] == "sbatch":
        return _wrapped(words)
    head = words[0].rpartition("/")[2] if words else ""
    if len(words) > 2 and head in _REMOTE and " " in words[-1]:
        return retyped(words[-1])
    return next((retyped(word) for word in reversed(words) if " " in word), None) if head in _TERMINALS else None


def given_variables(words: Sequence[str]) -> dict[str, str]:
    """Return the variables that a command sets for the shell it starts: `docker run -e A=1 …`, `env A=1 bash -c …`."""
    given: dict[str, str] = {}
    follows = False
    for before, word in itertools.pairwise(words):
        if _is_shell(word):
            break
        found = _GIVEN.fullmatch(word)
        follows = follows or before in ("-e", "--env", "env", "sudo") or word.startswith(("-e", "--env="))
        if found is not None and follows:
            given[found.group(1)] = found.group(2)
        follows = follows and found is not None
    return given


def given_arguments(words: Sequence[str]) -> list[str]:
    """Return the arguments of the script that a shell reads as text: `bash -c TEXT NAME ARGS`, `bash -s ARGS`."""
    at = next((index for index, word in enumerate(words) if _is_shell(word)), len(words)) + 1
    while at < len(words) and words[at].startswith("-"):
        if words[at].startswith("--"):
            at += 1
        elif words[at].endswith("c"):
            return list(words[at + 3 :])
        elif words[at].endswith("s"):
            return list(words[at + 1 :])
        else:
            at += 1
    return []


def _wrapped(words: Sequence[str]) -> str | None:
    """Return the text of `sbatch --wrap TEXT`."""
    for index, word in enumerate(words):
        name, equals, text = word.partition("=")
        if name == "--wrap":
            return retyped(text if equals else words[index + 1] if index + 1 < len(words) else "")
    return None


def reads_script(words: Sequence[str]) -> bool:
    """Return whether a command reads a script from standard input: `bash <<EOF`, `sbatch <<EOF`, `ssh HOST <<EOF`."""
    head = words[0].rpartition("/")[2]
    if head in (*SHELLS, "sbatch"):
        return not any(word == "-c" or word.endswith(_SCRIPTS) for word in words[1:])
    return head in _REMOTE and " " not in words[-1]


def heredoc(node: Node, expander: Expander) -> str | None:
    """Return the text of a redirected statement's here-document; None if it has none."""
    here = next((child for child in node.children if child.type == "heredoc_redirect"), None)
    if here is None:
        return None
    content = next((child for child in here.children if child.type == "heredoc_body"), None)
    start = next((text_of(child) for child in here.children if child.type == "heredoc_start"), "")
    if content is None:
        return None
    text = text_of(content) if any(char in start for char in "'\"\\") else expander.heredoc(content)
    # The grammar skips the leading blanks of the first line.
    text = between(here.text, here.start_byte, content.start_byte - content.start_point[1], content.start_byte) + text
    return re.sub(r"(?m)^\t+", "", text) if here.children[0].type == "<<-" else text


def heredoc_programs(node: Node) -> list[Node]:
    """Return the programs after `|` on the first line of a here-document."""
    after = (child for child in node.children if child.type == "heredoc_redirect")
    parts = [part for here in after for part in here.children if part.type == "pipeline"]
    while any(part.type == "pipeline" for part in parts):
        parts = [child for part in parts for child in (part.children if part.type == "pipeline" else [part])]
    return [part for part in parts if part.is_named]


def after_heredoc(node: Node) -> tuple[bool, Node] | None:
    """Return the command after `&&` or `||` on the first line of a here-document, and whether it is `&&`."""
    for here in (child for child in node.children if child.type == "heredoc_redirect"):
        for sign, command in itertools.pairwise(here.children):
            if sign.type in ("&&", "||"):
                return sign.type == "&&", command
    return None


def called_script(words: Sequence[str]) -> tuple[str, list[str]] | None:
    """Return path and arguments of the script that a command runs (`bash run.sh 8`); None: it runs none."""
    for index, word in enumerate(words):
        started = index == 0 or words[0].rpartition("/")[2] in _STARTERS
        if started and word.endswith(_SCRIPTS) and not word.startswith("-"):
            return word, list(words[index + 1 :])
        if not _is_shell(word):
            continue
        at = index + 1
        while at < len(words) and words[at].startswith("-"):
            at += 1
        if at < len(words) and words[at].endswith(_SCRIPTS):
            return words[at], list(words[at + 1 :])
        return None
    return None


def _is_shell(word: str) -> bool:
    return word.rpartition("/")[2] in SHELLS


def script_text(word: str, state: State, folder: Path | None) -> str | None:
    """Return the text of a script that another one names; None if it cannot be read.

    Args:
        folder: folder of the outer script, tried after its working directory.
    """
    name = state.path(word)
    written = state.heredocs.get(name)
    if name in state.changes:
        return None
    if written is not None or folder is None or is_open(word):
        return None if written is None else retyped(written)
    # `bash examples/x/run.sh`, `source env.sh`: relative to the root of the project, wherever the outer script is.
    is_of_project = ("/" in word or word.endswith(_SCRIPTS)) and not word.startswith("..")
    above = [*folder.resolve().parents][:_MOST_ABOVE] if is_of_project else []
    for base in (Path(state.directory), folder, *above):
        path = Path(word).expanduser() if Path(word).is_absolute() else base / word
        try:
            if path.is_file() and path.stat().st_size <= _LARGEST:
                return path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue  # not readable there: the caller reports a script that is nowhere
    return None
