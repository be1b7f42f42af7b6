"""Programs that change files which a script uses afterwards: `cp`, `mv`, `rm`, `sed -i`, `yq -i` …"""

import os.path
import re
from collections.abc import Sequence

from launcher.importing.shell import files
from launcher.importing.shell.builtins import Builtins
from launcher.importing.shell.grammar import Node, text_of
from launcher.importing.shell.placeholders import is_open, shown
from launcher.importing.shell.sed import edited, words_of
from launcher.importing.shell.state import Change

# Programs that edit the files which their arguments name, with such an option.
_EDITORS = {
    "yq": re.compile(r"-[a-zA-Z]*i\b|--inplace|--in-place|-w"),
    "perl": re.compile(r"-\w*i"),
    "ruby": re.compile(r"-\w*i"),
    "awk": re.compile(r"inplace"),
    "gawk": re.compile(r"inplace"),
    "dasel": re.compile(r"put"),
    "crudini": re.compile(r"--(set|del|merge)"),
}
_PYTHON = re.compile(r"python[\d.]*")
_WRITES = re.compile(r"dump\(|\.write|write_text|\bsave\(|[\"'][wa]\+?[\"']")
_NAMES = re.compile(r"[\w./~-]+\.(?:ya?ml|json)\b")


class FileCommands(Builtins):
    """Evaluates programs that change files."""

    def _do_copy(self, words: list[str], node: Node) -> bool:
        """`cp A B`, `mv A B`, `ln -s A B`: B has the content of A."""
        names = [word for word in words[1:] if not word.startswith("-")]
        if len(names) < 2 or any(map(is_open, names)):
            return True
        *sources, target = names
        for source in sources:
            is_folder = len(sources) > 1 or target.endswith(("/", ".")) or not os.path.splitext(target)[1]
            name = os.path.join(target, os.path.basename(source)) if is_folder else target
            if not files.is_followed(name) and files.read(source, self.state) is None:
                continue
            files.write([(name, False)], files.content_of(source, self.state), self.state, self._change(node))
            if words[0] == "mv":
                files.remove(source, self.state, self._change(node))
        return True

    def _do_remove(self, words: list[str], node: Node) -> bool:
        for word in (word for word in words[1:] if not word.startswith("-")):
            files.remove(word, self.state, self._change(node))
        return True

    def _do_make(self, words: list[str], node: Node) -> bool:
        """`mkdir -p A/B` and `touch A`: they exist from then on."""
        is_folder = words[0] == "mkdir"
        for word in (word for word in words[1:] if not word.startswith("-")):
            name = self.state.path(word)
            if self.state.changes.get(name) is not None and self.state.changes[name].removes:
                self.state.changes.pop(name)
            while name not in ("", "/", "."):
                self.state.made.setdefault(name, is_folder)
                name, is_folder = os.path.dirname(name), True
            is_folder = words[0] == "mkdir"
        return True

    def _do_sed(self, words: list[str], node: Node) -> bool:
        """`sed -i SCRIPT FILE`: edits files that are known, also those beside the script."""
        found = words_of(words[1:])
        names = [word for word in words[1:] if _is_name(word)] if found is None else found.files
        if found is None and not any(re.match(r"-\w*i|--in-place", word) for word in words[1:]):
            return True
        for name in names if found is None or found.in_place else ():
            text = files.content_of(name, self.state)
            after = None if found is None or text is None else edited(text, found)
            files.write([(shown(name), False)], after, self.state, self._change(node))
        return True

    def note_edits(self, words: Sequence[str], node: Node, given: str = "") -> None:
        """Record the files that a program changes in a way that is not followed.

        Args:
            given: its standard input, a program of Python.
        """
        program = shown(words[0]).rpartition("/")[2]
        options, names = [word for word in words[1:] if word.startswith("-")], [*words[1:]]
        if _PYTHON.fullmatch(program):
            code = given or (shown(words[words.index("-c") + 1]) if "-c" in words[:-1] else "")
            if not _WRITES.search(code):
                return
            names += [*_NAMES.findall(code)]
        elif program not in _EDITORS or not any(_EDITORS[program].match(word) for word in [*options, *names[:1]]):
            return
        for name in dict.fromkeys(map(shown, names)):
            if _is_name(name):
                files.write([(name, False)], None, self.state, self._change(node))

    def _change(self, node: Node) -> Change:
        return Change(how=text_of(node).split("\n")[0][:80], where=self._location(node))


def _is_name(word: str) -> bool:
    return files.is_followed(shown(word)) and not re.search(r"\s", shown(word))
