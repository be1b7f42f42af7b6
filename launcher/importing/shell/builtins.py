"""What bash does itself (`cd`, `eval`, `getopts`, `set`, `source` …), for the interpreter of a script."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path

from launcher.importing.notes import ImportRefused
from launcher.importing.shell.arithmetic import NotArithmetic, evaluate
from launcher.importing.shell.conditions import Conditions
from launcher.importing.shell.expand import Expander
from launcher.importing.shell.grammar import Node, line_of, parse
from launcher.importing.shell.placeholders import has_output, is_open, retyped, shown
from launcher.importing.shell.scripts import script_text
from launcher.importing.shell.state import State

# `eval "$(conda shell.bash hook)"` and its like prepare the shell, not the training.
_ENVIRONMENT_HOOK = re.compile(r"""[$(`'"]*[\w./~${}-]*\b(conda|mamba|micromamba|ssh-agent|direnv|pyenv|brew)\b""")

DEEPEST = 30


class Stop(Exception):
    """`exit`, `return`, `break` or `continue`."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


class Builtins(ABC):
    """Builtins: each returns its exit status, None where it is not known."""

    state: State
    folder: Path | None
    expander: Expander
    conditions: Conditions
    depth: int
    _letter = 0

    @abstractmethod
    def block(self, nodes: Iterable[Node]) -> bool | None:
        """Evaluate statements one after the other."""

    def _place(self, node: Node) -> str:
        return f"{self.state.script}:{line_of(node)}"

    @abstractmethod
    def _text(self, source: str, node: Node, own: Mapping[str, str] | None = None) -> bool | None:
        """Evaluate a text as a script of its own."""

    def _do_nothing(self, words: list[str], node: Node) -> bool:
        return True

    def _do_false(self, words: list[str], node: Node) -> bool:
        return False

    def _do_stop(self, words: list[str], node: Node) -> bool:
        if words[0] == "exit":
            self.state.stopped = self._place(node)
        raise Stop(words[0])

    def _do_eval(self, words: list[str], node: Node) -> bool | None:
        text = " ".join(words[1:]).strip()
        first = shown(text.split(maxsplit=1)[0]) if text else ""
        if has_output(text) and first.startswith(("$(", "`")):
            if _ENVIRONMENT_HOOK.match(first):
                return True
            self.state.fail(f"eval of {first[:60]!r} cannot be resolved without running it", self._place(node))
            return None
        return self._text(retyped(text), node)

    def _do_set(self, words: list[str], node: Node) -> bool:
        if "--" in words:
            self.state.positional = words[words.index("--") + 1 :]
        return True

    def _do_shift(self, words: list[str], node: Node) -> bool:
        count = int(words[1]) if len(words) > 1 and words[1].isdigit() else 1
        self.state.positional = self.state.positional[count:]
        return True

    def _do_let(self, words: list[str], node: Node) -> bool | None:
        try:
            return [evaluate(word, self.expander.look_up, self.state.set) for word in words[1:]][-1] != 0
        except (NotArithmetic, IndexError):
            return None

    def _do_test(self, words: list[str], node: Node) -> bool | None:
        return self.conditions.words(words[1:])

    def _do_cd(self, words: list[str], node: Node) -> bool:
        if len(words) > 1:
            target = Path(shown(words[1]))
            self.state.directory = str(target if target.is_absolute() else Path(self.state.directory) / target)
        return True

    def _do_source(self, words: list[str], node: Node) -> bool | None:
        if len(words) < 2:
            return None
        name = shown(words[1])
        self.state.sources.setdefault(name, "")
        text = script_text(words[1], self.state, self.folder)
        if text is None:
            self.state.warn(f"{name} cannot be read: what it sets is not known", self._place(node))
            return None
        outer, self.state.script = self.state.script, name
        positional = self.state.positional
        if len(words) > 2:
            self.state.positional = words[2:]
        try:
            if self.depth > DEEPEST:
                self.state.fail(f"{name} is sourced too deeply: files source each other", self._place(node))
                return None
            self.state.sources[name] = text
            return self.block(parse(text.encode("utf-8"), name).children)
        except ImportRefused as error:
            self.state.problems += error.notes
            return None
        except Stop as stop:
            if stop.kind != "return":
                raise
            return None
        finally:
            self.state.script, self.state.positional = outer, positional

    def _do_getopts(self, words: list[str], node: Node) -> bool:
        """`getopts LETTERS NAME [WORDS]`: the next option of a script's or function's arguments."""
        if len(words) < 3:
            return False
        letters, name = words[1].lstrip(":"), words[2]
        given = words[3:] or self.state.arguments()
        number = self.expander.value("OPTIND")
        at = int(number) - 1 if isinstance(number, str) and number.isdigit() else 0
        word = given[at] if at < len(given) else ""
        if is_open(word) or len(word) < 2 or word[0] != "-" or word == "--":
            self.state.set(name, "?")
            return False
        letter, rest = word[1 + self._letter], word[2 + self._letter :]
        known = letters.find(letter) if letter != ":" else -1
        if known >= 0 and letters[known + 1 : known + 2] == ":":
            self.state.set("OPTARG", rest or (given[at + 1] if at + 1 < len(given) else ""))
            at, rest = at + (1 if rest else 2), ""
        else:
            at += not rest
        self._letter = self._letter + 1 if rest else 0
        self.state.set("OPTIND", str(at + 1))
        self.state.set(name, letter if known >= 0 else "?")
        return True


BUILTINS = {
    **dict.fromkeys(("echo", "printf", ":", "true", "trap", "ulimit", "umask", "shopt", "sleep", "wait"), "nothing"),
    **dict.fromkeys(("rm", "cp", "mv", "touch", "chmod", "ln", "cat", "tee", "mkdir", "popd", "pushd"), "nothing"),
    **dict.fromkeys(("exit", "return", "break", "continue"), "stop"),
    **dict.fromkeys(("source", "."), "source"),
    "false": "false",
    "eval": "eval",
    "getopts": "getopts",
    "set": "set",
    "shift": "shift",
    "let": "let",
    "test": "test",
    "cd": "cd",
}
