"""Fenced blocks of a page: commands with their output, files, and commands that need another machine."""

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

_BLOCK = re.compile(
    r"^(?P<mark><!-- (?P<kind>file|not run): (?P<value>.*?) -->\n)?"
    r"(?P<fence>`{3,})(?P<language>console|bash|yaml|json|python|text|toml)\n(?P<body>.*?)^(?P=fence)$",
    re.DOTALL | re.MULTILINE,
)
_CODE = re.compile(r"^\(exit code (?P<code>\d+)\)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command of a console block.

    Attributes:
        text: what a reader types, continuation lines and here-documents included.
        output: recorded lines below it; `…` stands for any text in a line, on a line of its own for any lines.
        code: exit code that the page states as its last line; 0 if it states none.
    """

    text: str
    output: tuple[str, ...]
    code: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block.

    Attributes:
        language: of the fence.
        body: lines between the fences.
        start: offset of the body in the page.
        file: path to which a reader writes the block; empty: not a file.
        not_run: why the block is not run; empty: it is.
    """

    language: str
    body: str
    start: int
    file: str = ""
    not_run: str = ""

    @property
    def commands(self) -> tuple[Command, ...]:
        """Return the commands of a console block."""
        return tuple(_commands(self.body.splitlines())) if self.language == "console" else ()


def blocks(page: str) -> list[Block]:
    """Return the blocks of a page in their order."""
    return [
        Block(
            language=match["language"],
            body=match["body"],
            start=match.start("body"),
            file=match["value"] if match["kind"] == "file" else "",
            not_run=match["value"] if match["kind"] == "not run" else "",
        )
        for match in _BLOCK.finditer(page)
    ]


def _commands(lines: list[str]) -> Iterator[Command]:
    """Yield commands: `$ ` begins one, `> ` continues it, and so does the line after a final backslash."""
    typed: list[str] = []
    output: list[str] = []
    for line in lines:
        if line.startswith("$ "):
            if typed:
                yield _command(typed, output)
            typed, output = [line[2:]], []
        elif not output and (typed[-1].endswith("\\") or line.startswith("> ")):
            typed.append(line.removeprefix("> "))
        else:
            output.append(line)
    if typed:
        yield _command(typed, output)


def _command(typed: list[str], output: list[str]) -> Command:
    stated = _CODE.match(output[-1]) if output else None
    shown = output[:-1] if stated else output
    return Command(text="\n".join(typed), output=tuple(shown), code=int(stated["code"]) if stated else 0)


def shown(command: Command) -> str:
    """Return a command as it stands in a page."""
    typed = command.text.splitlines()
    lines = [f"$ {typed[0]}"]
    for before, line in itertools.pairwise(typed):
        lines.append(line if before.endswith("\\") else f"> {line}")
    lines += command.output
    lines += [f"(exit code {command.code})"] if command.code else []
    return "".join(f"{line}\n" for line in lines)
