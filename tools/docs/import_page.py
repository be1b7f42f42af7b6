"""Writes docs/import.md: the port of a real script, with the output that the commands give today.

    python -m tools.docs.import_page [--check]

The page's text is in import_page.md; every block that begins with `$` is filled with what the command prints. A command
that ends with another exit code than 0, or than a line `#exit N` below it expects, fails the build of the page.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_PAGE = _ROOT / "docs" / "import.md"
_TEXT = Path(__file__).with_name("import_page.md")
_FIGURES = Path(__file__).with_name("import_figures.md")  # python -m tools.bench.corpus --facts DIR --markdown
_PORTS = Path(__file__).with_name("import_ports.md")  # python -m tools.bench.ports --facts DIR --markdown
_DECISIONS = Path(__file__).with_name("import_decisions.md")  # python -m tools.bench.port_decisions --facts DIR
_ACCEPTED = Path(__file__).with_name("import_accepted.md")  # python -m tools.bench.port_acceptance --facts DIR
_OTHERS = Path(__file__).with_name("import_others.md")  # python -m tools.bench.other_scripts --checkouts DIR
# python -m tools.bench.other_scripts --checkouts DIR --list tools/bench/later_scripts.json
_LATER = Path(__file__).with_name("import_later.md")
# python -m tools.bench.other_scripts --upstream PROJECT@VERSION=DIR … --write
_UPSTREAM = Path(__file__).with_name("import_upstream.md")
_FORKS = Path(__file__).with_name("import_forks.md")  # python -m tools.bench.forks --checkouts DIR
_SCRIPT = _ROOT / "tests" / "importing" / "data" / "qwen3_32b.sh"
COMMAND = re.compile(
    r"```console\n\$ (?P<command>.+?)\n(?:#lines (?P<lines>.+?)\n)?(?:#exit (?P<code>\d+)\n)?```", re.DOTALL
)


class UnexpectedExit(RuntimeError):
    """A command of a page ended with another exit code than the page expects."""


def page() -> str:
    """Return the page with the output of its commands, run in an empty folder that holds the script."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, _SCRIPT.name).write_text(_SCRIPT.read_text(encoding="utf-8"), encoding="utf-8")
        text = _TEXT.read_text(encoding="utf-8").replace("{script}", _without_source(_SCRIPT))
        text = text.replace("{figures}", _FIGURES.read_text(encoding="utf-8").strip())
        text = text.replace("{ports}", _PORTS.read_text(encoding="utf-8").strip())
        text = text.replace("{decisions}", _DECISIONS.read_text(encoding="utf-8").strip())
        text = text.replace("{accepted}", _ACCEPTED.read_text(encoding="utf-8").strip())
        text = text.replace("{others}", _OTHERS.read_text(encoding="utf-8").strip())
        text = text.replace("{later}", _LATER.read_text(encoding="utf-8").strip())
        text = text.replace("{upstream}", _UPSTREAM.read_text(encoding="utf-8").strip())
        text = text.replace("{forks}", _FORKS.read_text(encoding="utf-8").strip())
        return filled(text, folder)


def filled(text: str, folder: str) -> str:
    """Return a text whose commands are followed by what they print in this folder.

    Raises:
        UnexpectedExit: a command ended otherwise than the text expects.
    """
    return COMMAND.sub(lambda match: _block(match, folder), text)


def expected_code(match: re.Match[str]) -> int:
    """Return the exit code that a page expects of a command."""
    return int(match["code"] or 0)


def _without_source(path: Path) -> str:
    lines = path.read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if not line.startswith("# Source:"))


def _block(match: re.Match[str], folder: str) -> str:
    command, lines = match["command"], match["lines"]
    # As in a shell, which does not export COLUMNS: a pipe has whole lines.
    width = {} if " | " in command else {"COLUMNS": "120"}
    environment = {**os.environ, "PYTHONPATH": str(_ROOT), **width}
    args = command.replace("launch ", f"{sys.executable} -m launcher ", 1)
    done = subprocess.run(
        ["bash", "-c", f"{args} 2>&1"], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != expected_code(match):
        raise UnexpectedExit(f"$ {command}\n{done.stdout}exit code {done.returncode}, not {expected_code(match)}")
    output = done.stdout.rstrip("\n").splitlines()
    return f"```console\n$ {command}\n" + "\n".join([*_chosen(output, lines), f"(exit code {done.returncode})", "```"])


def _chosen(output: list[str], lines: str | None) -> list[str]:
    """Return the lines that a list such as `1-3 … -1` asks for; long ones are cut."""
    if lines is None:
        return [_cut(line) for line in output]
    chosen: list[str] = []
    for part in lines.split():
        if part == "…":
            chosen.append("…")
            continue
        first, _, last = part.partition("..")
        start = int(first) - 1 if int(first) > 0 else len(output) + int(first)
        stop = start + 1 if not last else int(last) if int(last) > 0 else len(output) + int(last) + 1
        chosen += [_cut(line) for line in output[start:stop]]
    return chosen


def _cut(line: str) -> str:
    """Return a line; a command line that is too long for a page is continued, as a shell would take it."""
    if len(line) <= 160 or line.startswith(" "):
        return line
    parts = textwrap.wrap(line, 116, break_long_words=False, break_on_hyphens=False)
    return " \\\n    ".join(parts)


def main(argv: list[str] | None = None) -> int:
    """Write the page, or with --check report whether it is current; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.docs.import_page")
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 where the page is out of date")
    options = parser.parse_args(argv)
    text = page()
    if options.check:
        return int(not _PAGE.exists() or _PAGE.read_text(encoding="utf-8") != text)
    _PAGE.write_text(text, encoding="utf-8")
    print(f"{_PAGE}: {len(text.splitlines())} lines")
    return 0


if __name__ == "__main__":
    sys.exit(main())
