"""Builtins of bash (`cd`, `eval`, `getopts`, `set`, `source` …), for the interpreter of a script."""

import itertools
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from launcher.importing.shell.arithmetic import NotArithmetic, evaluate
from launcher.importing.shell.conditions import Conditions
from launcher.importing.shell.diagnostics import NotReadable
from launcher.importing.shell.expand import Expander
from launcher.importing.shell.grammar import Node, line_of, parse
from launcher.importing.shell.pieces import Piece, assembled
from launcher.importing.shell.placeholders import has_output, is_open, placeholder, retyped, shown
from launcher.importing.shell.printf import formatted
from launcher.importing.shell.scripts import script_text
from launcher.importing.shell.state import State
from launcher.syntax import is_count

# `eval "$(conda shell.bash hook)"` and the like prepare the shell, not the training.
_ENVIRONMENT_HOOK = re.compile(r"""[$(`'"]*[\w./~${}-]*\b(conda|mamba|micromamba|ssh-agent|direnv|pyenv|brew)\b""")

DEEPEST = 30


class Stop(Exception):
    """`exit`, `return`, `break` or `continue`.

    Attributes:
        levels: number of loops that `break` and `continue` leave.
    """

    def __init__(self, kind: str, levels: int = 1) -> None:
        super().__init__(kind)
        self.kind, self.levels = kind, levels


class Builtins(ABC):
    """Builtins; each returns whether it succeeded, None if unknown."""

    state: State
    folder: Path | None
    expander: Expander
    conditions: Conditions
    depth: int
    loops: int
    _letter = 0

    @abstractmethod
    def block(self, nodes: Iterable[Node]) -> bool | None:
        """Evaluate statements one after the other."""

    def _location(self, node: Node) -> str:
        return f"{self.state.script}:{line_of(node)}"

    @abstractmethod
    def printed_by(self, run: Callable[[], object]) -> str | None:
        """Return the output of a part of the script; None if it is not known without running it."""

    @abstractmethod
    def _of_process(self, node: Node) -> str | None:
        """Return the output of `<(…)`; None if it is not known without running it."""

    @abstractmethod
    def _function(self, words: list[str]) -> bool | None:
        """Evaluate a function call."""

    @abstractmethod
    def _text(self, source: str, node: Node, command_env: Mapping[str, str] | None = None) -> bool | None:
        """Evaluate a text as a script."""

    def _do_nothing(self, words: list[str], node: Node) -> bool:
        return True

    def _do_shopt(self, words: list[str], node: Node) -> bool:
        for name in ("extglob", "lastpipe"):
            if name in words[2:] and words[1] in ("-s", "-u"):
                setattr(self.state, name, words[1] == "-s")
        return True

    def _do_printf(self, words: list[str], node: Node) -> bool:
        if words[1:2] == ["-v"] and len(words) > 3:
            text = formatted(words[3], words[4:])
            self.expander.store(words[2], placeholder(f"${words[2]}", computed=True) if text is None else text)
        return True

    def _do_false(self, words: list[str], node: Node) -> bool:
        return False

    def _do_stop(self, words: list[str], node: Node) -> bool:
        number = words[1] if len(words) > 1 else ""
        if words[0] == "exit":
            self.state.stopped = self._location(node)
        if words[0] in ("exit", "return"):
            if number:  # without one, the status stays that of the command before
                self.state.status = int(number) % 256 if is_count(number) else None
            raise Stop(words[0])
        if is_open(number):
            self.state.fail(f"{words[0]} {shown(number)}: the number of loops is unknown", self._location(node))
        if not self.loops:
            return True
        raise Stop(words[0], int(number) if is_count(number) else 1)

    def _do_eval(self, words: list[str], node: Node) -> bool | None:
        text = " ".join(words[1:]).strip()
        first = shown(text.split(maxsplit=1)[0]) if text else ""
        if has_output(text) and first.startswith(("$(", "`")):
            if _ENVIRONMENT_HOOK.match(first):
                return True
            self.state.fail(f"eval of {first[:60]!r} cannot be resolved without running it", self._location(node))
            return None
        return self._text(retyped(text), node)

    def _do_set(self, words: list[str], node: Node) -> bool:
        for sign, option in itertools.pairwise(words):
            if option == "pipefail" and re.fullmatch(r"[-+]\w*o", sign):
                self.state.pipefail = sign.startswith("-")
        if "--" in words:
            self.state.positional = words[words.index("--") + 1 :]
        return True

    def _do_shift(self, words: list[str], node: Node) -> bool:
        count = int(words[1]) if len(words) > 1 and is_count(words[1]) else 1
        self.state.positional = self.state.positional[count:]
        return True

    def _do_let(self, words: list[str], node: Node) -> bool | None:
        try:
            return [evaluate(word, self.expander.look_up, self.expander.store) for word in words[1:]][-1] != 0
        except (NotArithmetic, IndexError):
            return None

    def _do_test(self, words: list[str], node: Node) -> bool | None:
        return self.conditions.command(node)

    def _do_cd(self, words: list[str], node: Node) -> bool:
        names = [word for word in words[1:] if word == "-" or not word.startswith("-")]
        back = self.state.previous_directory or placeholder("$OLDPWD")
        self.state.change_directory("${HOME}" if not names else back if names[0] == "-" else names[0])
        return True

    def _do_pushd(self, words: list[str], node: Node) -> bool:
        """`pushd FOLDER`, `pushd` (back and forth), `popd`."""
        state, names = self.state, [word for word in words[1:] if not word.startswith("-")]
        before = state.directory
        if words[0] == "pushd" and names:
            state.change_directory(names[0])
        elif state.directory_stack:
            state.change_directory(state.directory_stack.pop())
        else:
            return False
        state.directory_stack += [before] * (words[0] == "pushd")
        return True

    def _do_source(self, words: list[str], node: Node) -> bool | None:
        if len(words) < 2:
            return None
        name = shown(words[1])
        self.state.sources.setdefault(name, "")
        text = self._given_to(node) or script_text(words[1], self.state, self.folder)
        if text is None:
            self.state.warn(f"{name} cannot be read: what it sets is unknown", self._location(node))
            return None
        outer, self.state.script = self.state.script, name
        positional = self.state.positional
        if len(words) > 2:
            self.state.positional = words[2:]
        try:
            if self.depth > DEEPEST:
                self.state.fail(f"{name} is sourced too deeply: files source each other", self._location(node))
                return None
            self.state.sources[name] = text
            return self.block(parse(text.encode("utf-8"), name).children)
        except NotReadable as error:
            self.state.problems.append(error.diagnostic)
            return None
        except Stop as stop:
            if stop.kind != "return":
                raise
            return None
        finally:
            self.state.script, self.state.positional = outer, positional

    def _given_to(self, node: Node) -> str | None:
        """Return the text of `source <(…)` and `source /dev/stdin <<< …`; None: it is not known, or in a file."""
        for child in node.children:
            if child.type == "process_substitution":
                return self._of_process(child)
            if child.type == "herestring_redirect":
                return retyped(self.expander.text(child.children[-1])) + "\n"
        return None

    def _do_read(self, words: list[str], node: Node) -> bool | None:
        """`read [-ra] NAMES`: the next line of the input, split into words."""
        options, names = _options_of(words[1:], "dinNptu")
        names = names or ["REPLY"]
        lines = self._input(node)
        text, ended = (None, False) if lines is None else _record(lines, options)
        if text is None or ("a" not in options and len(names) > 1 and is_open(text)):
            for name in names if names != ["REPLY"] else []:
                self.state.variables.pop(name, None)
                if "a" in options or text is not None:
                    self.state.set(name, placeholder(f"${name}", computed=text is not None))
            return None
        separators = self.expander.ifs()
        if "a" in options:
            self.state.set(names[0], assembled([Piece(text, splits=True)], quoted=False, ifs=separators))
            return ended
        blanks = "".join(sign for sign in " \t\n" if separators is None or sign in separators)
        for index, name in enumerate(names):
            text = text.strip(blanks)
            part, text = _first(text, separators) if index < len(names) - 1 else (text, "")
            self.expander.store(name, part)
        return ended

    def _do_mapfile(self, words: list[str], node: Node) -> bool | None:
        """`mapfile -t NAME`: all lines of the input."""
        options, names = _options_of(words[1:], "dnOsuCc")
        name, lines = names[0] if names else "MAPFILE", self._input(node)
        if lines is None or set(options) - {"t"} or any(map(is_open, lines)):
            self.state.set(name, placeholder(f"${{{name}[@]}}"))
            return None
        self.state.set(name, [line.removesuffix("\n") for line in lines] if "t" in options else list(lines))
        lines.clear()
        return True

    def _input(self, node: Node) -> list[str] | None:
        """Return the input lines of a command, with their line ends; None if unknown."""
        given = next((child for child in node.children if child.type == "herestring_redirect"), None)
        if given is not None:
            return lines_of(self.expander.text(given.children[-1]) + "\n")
        return self.state.inputs[-1] if self.state.inputs else None

    def _do_getopts(self, words: list[str], node: Node) -> bool:
        """`getopts LETTERS NAME [WORDS]`: the next option of a script's or function's arguments."""
        if len(words) < 3:
            return False
        letters, name, is_silent = words[1].lstrip(":"), words[2], words[1].startswith(":")
        given = words[3:] or self.state.arguments()
        number = self.expander.value("OPTIND")
        at = int(number) - 1 if isinstance(number, str) and is_count(number) else 0
        word = given[at] if at < len(given) else ""
        if is_open(word) or len(word) < 2 or word[0] != "-" or word == "--":
            self.state.set(name, "?")
            return False
        letter, rest = word[1 + self._letter], word[2 + self._letter :]
        known = letters.find(letter) if letter != ":" else -1
        found = letter if known >= 0 else "?"
        if known >= 0 and letters[known + 1 : known + 2] == ":":
            is_missing = not rest and at + 1 >= len(given)
            found = (":" if is_silent else "?") if is_missing else letter
            self.state.set("OPTARG", letter * is_silent if is_missing else rest or given[at + 1])
            at, rest = at + (1 if rest else 2), ""
        else:
            if known < 0:
                self.state.set("OPTARG", letter * is_silent)
            at += not rest
        self._letter = self._letter + 1 if rest else 0
        self.state.set("OPTIND", str(at + 1))
        self.state.set(name, found)
        return True


def lines_of(text: str) -> list[str]:
    """Return the lines of a text with their line ends; the last one may have none."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _record(lines: list[str], options: Mapping[str, str]) -> tuple[str, bool]:
    """Return the text that one `read` consumes, up to the `-d` delimiter or the end, and whether one was found."""
    sign = options["d"][:1] if "d" in options else "\n"
    everything = "".join(lines)
    escaped = r"" if "r" in options else r"\\.|"
    found = (
        re.match(rf"((?:{escaped}[^{re.escape(sign)}])*)({re.escape(sign)})?", everything, re.DOTALL) if sign else None
    )
    text, is_there = (everything, False) if found is None else (found.group(1), found.group(2) is not None)
    lines[:] = [] if found is None else lines_of(everything[found.end() :])
    return text if "r" in options else re.sub(r"\\(?:\n|(.))", r"\1", text), is_there


def _options_of(words: list[str], valued: str) -> tuple[dict[str, str], list[str]]:
    """Return the options of a builtin by letter with their values, and its other words.

    Args:
        valued: letters with a value: the rest of the word or the next one (not `-a` of `read -a NAME`).
    """
    options: dict[str, str] = {}
    names, at = [], 0
    while at < len(words):
        if words[at].startswith("-") and len(words[at]) > 1:
            for index, letter in enumerate(words[at][1:], 2):
                options[letter] = ""
                if letter in valued:
                    rest = words[at][index:]
                    at += not rest
                    options[letter] = rest or (words[at] if at < len(words) else "")
                    break
        else:
            names.append(words[at])
        at += 1
    return options, names


def _first(text: str, separators: str | None) -> tuple[str, str]:
    """Return the text before the first separator, and the rest."""
    if separators == "":
        return text, ""
    parts = re.split(r"\s+" if separators is None else f"[{re.escape(separators)}]", text, maxsplit=1)
    return parts[0], parts[1] if len(parts) > 1 else ""


BUILTINS = {
    **dict.fromkeys(("echo", ":", "true", "trap", "ulimit", "umask", "sleep", "wait"), "nothing"),
    **dict.fromkeys(("chmod", "cat", "tee"), "nothing"),
    **dict.fromkeys(("pushd", "popd"), "pushd"),
    **dict.fromkeys(("cp", "mv", "ln"), "copy"),
    "rm": "remove",
    **dict.fromkeys(("mkdir", "touch"), "make"),
    "sed": "sed",
    **dict.fromkeys(("exit", "return", "break", "continue"), "stop"),
    **dict.fromkeys(("source", "."), "source"),
    **dict.fromkeys(("mapfile", "readarray"), "mapfile"),
    "read": "read",
    "printf": "printf",
    "false": "false",
    "eval": "eval",
    "getopts": "getopts",
    "set": "set",
    "shift": "shift",
    "shopt": "shopt",
    "let": "let",
    "test": "test",
    "cd": "cd",
}
