"""The table of bad inputs: `files.yaml` and `commands.txt`, expanded to one case for each command and file."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent
_EACH = re.compile(r"\{([a-z])\}")
_BYTE = re.compile(r"\\x([0-9a-f]{2})")
_CONDITIONS = re.compile(r"\[([^\]]*)\]\s*(.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One command.

    Attributes:
        words: of the command line; bytes that are no UTF-8 as surrogates, as Python has them in sys.argv.
        conditions: of the process (see run.py), and `ok` where exit code 0 is right.
    """

    words: tuple[str, ...]
    conditions: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Return the command as it is shown; long words cut short."""
        shown = " ".join(ascii(arg)[1:-1] if not arg.isascii() else arg for arg in self.words) or "(no words)"
        return f"[{','.join(self.conditions)}] {shown}" if self.conditions else shown

    @property
    def codes(self) -> tuple[int, ...]:
        """Return the exit codes that are right."""
        if any(each.startswith("int=") for each in self.conditions):
            # -2: before Python answers signals, which a shell shows as 130; others: ended before the signal.
            return (130, -2, 0, 1, 2)
        return (0,) if "ok" in self.conditions else (1, 2)


def files() -> dict[str, bytes]:
    """Return the content of every file by its path."""
    tree: dict[str, Any] = yaml.safe_load((HERE / "files.yaml").read_text(encoding="utf-8"))
    return {path: _content(spec) for path, spec in tree.items()}


def write_files(folder: Path) -> None:
    """Write all files below a folder."""
    for path, content in files().items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)


def cases() -> list[Case]:
    """Return every case, in the order of the table."""
    lines = (HERE / "commands.txt").read_text(encoding="utf-8").splitlines()
    paths = list(files())
    return [case for line in lines if line and not line.startswith("#") for case in _of_line(line, paths)]


def one_way_each(found: list[Case]) -> list[Case]:
    """Return every command without a file, and for each file one of the commands that read it, in turn."""
    names = set(files()) | {path.rsplit("/", 1)[0] for path in files()}
    ways: dict[str, list[Case]] = {}
    for case in found:
        named = next((text for arg in case.words if (text := arg.rpartition("=")[2]) in names), "")
        ways.setdefault(named, []).append(case)
    alone = ways.pop("", [])
    return [each[number % len(each)] for number, each in enumerate(ways.values())] + alone


def _of_line(line: str, paths: list[str]) -> list[Case]:
    # Before the shell's rules are applied, which take a backslash away.
    line = _BYTE.sub(lambda found: chr(0xDC00 + int(found[1], 16)), line)
    match = _CONDITIONS.fullmatch(line)
    conditions = tuple(match[1].split(",")) if match else ()
    words = tuple(shlex.split(match[2] if match else line))
    letters = [found[1] for arg in words if (found := _EACH.fullmatch(arg.partition("=")[2] or arg))]
    named = _named(letters[0], paths) if letters else [""]
    return [Case(words=tuple(_word(arg, path) for arg in words), conditions=conditions) for path in named]


def _named(letter: str, paths: list[str]) -> list[str]:
    """Return what stands for a letter: its files, or for models, runs and checkpoints the folders."""
    own = [path for path in paths if path.startswith(f"{letter}/")]
    return list(dict.fromkeys("/".join(path.split("/")[:2]) if letter in "crk" else path for path in own))


def _word(arg: str, path: str) -> str:
    if path:
        arg = _EACH.sub(lambda _: path, arg)
    return arg.replace("{{", "{").replace("}}", "}")


def _content(spec: Any) -> bytes:
    if isinstance(spec, str):
        return spec.encode()
    if isinstance(spec, dict):
        return str(spec["latin1"]).encode("latin-1")
    return "".join(part if isinstance(part, str) else part[0] * part[1] for part in spec).encode()
