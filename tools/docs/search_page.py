"""Writes docs/search.md: from a recipe to a tuned job, with the output that the commands give today.

    python -m tools.docs.search_page

The page's text is in search_page.md; every block that begins with `$` is filled with what the command prints, which
must end with the exit code that the text expects (see import_page.py). Seconds that a search or a solver took are left
out: they differ from run to run.
"""

import re
import shutil
import sys
import tempfile
from pathlib import Path

from tools.docs.import_page import filled

_ROOT = Path(__file__).resolve().parents[2]
_PAGE = _ROOT / "docs" / "search.md"
_TEXT = Path(__file__).with_name("search_page.md")
MEASURED = Path(__file__).with_name("search_measured.csv")
_SECONDS = (
    (re.compile(r"((?:estimated|solved)\s+in\s+)[\d.]+ s$", re.MULTILINE), r"\1… s"),
    (re.compile(r"^searching: .*\n", re.MULTILINE), ""),
)


def page() -> str:
    """Return the page with the output of its commands, run in an empty folder that holds the measurements."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(MEASURED, Path(folder, "measured.csv"))
        return without_seconds(filled(_TEXT.read_text(encoding="utf-8"), folder))


def without_seconds(text: str) -> str:
    """Return a text without how long searches and solvers took."""
    for pattern, replacement in _SECONDS:
        text = pattern.sub(replacement, text)
    return text


def main() -> int:
    """Write the page; return the exit code."""
    text = page()
    _PAGE.write_text(text, encoding="utf-8")
    print(f"{_PAGE}: {len(text.splitlines())} lines")
    return 0


if __name__ == "__main__":
    sys.exit(main())
