"""`launch list`: recipes, models, hardware, backends with their versions, and rules, one line each."""

import shutil
import sys
import textwrap
from collections.abc import Sequence

from launcher.cli.listed import GROUPS, Listed
from launcher.cli.options import parse, parser, print_json
from launcher.cli.refusal import NotDone, WrongUse
from launcher.compose.search_path import search_path
from launcher.nearest import nearest
from launcher.syntax import escaped

_EXAMPLES = """\
launch list recipes qwen3 lora
  launch list backends
  launch list rules MOE --json"""
# The column of names is never wider than this part of a terminal.
_NAMES = 0.4
# A narrower terminal gets lines of this width, which it wraps itself.
_LEAST = 40
# So many lines are wrapped, not cut.
_FEW = 5
# Characters of a text that nothing holds, as a refusal repeats it.
_LONGEST = 80


def main(words: list[str]) -> int:
    """List a group; exit 1 if nothing holds the texts, 2 for an unknown group."""
    made = parser("list", "List what the program knows, one line each.", _EXAMPLES, overrides=False)
    made.add_argument("group", nargs="?", metavar="GROUP", help=" | ".join(GROUPS))
    made.add_argument("texts", nargs="*", default=[], metavar="TEXT", help="only lines that contain all of these")
    made.add_argument("--config-dir", action="append", default=[], metavar="DIR", help="folder with your own recipes")
    options = parse(made, words)
    if options.group not in GROUPS:
        raise _unknown(options.group)
    whole = GROUPS[options.group](search_path(options.config_dir))
    found = [each for each in whole if each.holds(options.texts)]
    if not found:
        raise _nothing(options.group, options.texts, whole)
    if options.json:
        print_json([each.tree for each in found])
    else:
        _show(found, shutil.get_terminal_size().columns if sys.stdout.isatty() else None)
    return 0


def _unknown(group: str | None) -> WrongUse:
    if group is None:
        return WrongUse("which list?", *(f"launch list {name}" for name in GROUPS))
    near = nearest(group, GROUPS, cutoff=0.5)
    return WrongUse(f"no list of {group!r}", *(f"launch list {name}" for name in near or GROUPS))


def _nothing(group: str, texts: Sequence[str], whole: Sequence[Listed]) -> NotDone:
    near = nearest(texts[0], [each.name for each in whole], cutoff=0.5) if texts else ()
    asked = " and ".join(texts)
    asked = asked if len(asked) <= _LONGEST else f"{asked[:_LONGEST]}…"
    return NotDone(f"none of the {group} contains {asked}", *(near or (f"launch list {group}",)))


def _show(found: Sequence[Listed], columns: int | None) -> None:
    """Print the lines with the names in one column, whole where they are few or no terminal reads them, else cut."""
    width = max(len(each.name) for each in found)
    if columns is not None:
        columns = max(columns, _LEAST)
        width = min(width, int(columns * _NAMES))
    for each in found:
        line = escaped(f"{each.name:{width}}  {each.what}".rstrip())
        if columns is None:
            print(line)
        elif len(found) <= _FEW:
            print("\n".join(textwrap.wrap(line, columns, subsequent_indent=" " * (width + 2))))
        else:
            print(line if len(line) <= columns else f"{line[: columns - 1].rstrip()}…")
