"""`launch list`: recipes, models, hardware, backends with their versions, and rules, one line each."""

import sys
from collections.abc import Sequence

from launcher.cli.listed import GROUPS, Listed
from launcher.cli.options import parse, parser, print_json
from launcher.cli.refusal import NotDone, WrongUse
from launcher.compose.search_path import search_path
from launcher.nearest import nearest
from launcher.report.text_page import Page, page_of, print_lines
from launcher.syntax import escaped

_EXAMPLES = """\
launch list recipes qwen3 lora
  launch list backends
  launch list rules MOE --json"""
# Names that are wider than this part of a terminal do not widen their column.
_NAMES = 0.4
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
        # Lines are cut for eyes only: a program that reads them gets them whole, whatever COLUMNS says.
        _show(found, page_of(sys.stdout) if sys.stdout.isatty() else Page())
    if options.group == "backends":
        from launcher.mapping.backend import broken_backends

        for why in broken_backends().values():
            print_lines([f"not listed: {why}"], sys.stderr)
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


def _show(found: Sequence[Listed], page: Page) -> None:
    """Print a line each, the names in one column; longer ones wrapped where they are few, else cut, with a remark."""
    rows = [(escaped(each.name), escaped(each.what)) for each in found]
    if page.width is None or len(found) <= _FEW:
        print("\n".join(page.pairs(rows, "")))
        return
    whole = Page().pairs(rows, "", widest=int(page.width * _NAMES))
    cut = [page.clip(line) for line in whole]
    print("\n".join(cut))
    if cut != whole:
        text = (
            f"… stands for what {page.width} columns do not hold: add TEXT to see fewer, or | less -S for whole lines"
        )
        print("\n".join(page.wrap(text, "", "  ")), file=sys.stderr)
